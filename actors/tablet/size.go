package tablet

import (
	"slices"
	"strings"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The size of the tablet's rows. Every applied entry adds the sizes of its effects; the
// count is replicated, included in snapshots, and divided by splits, so that all replicas
// agree and a restart changes nothing. The effects do not contain everything, such as the
// length of a value removed by a deletion, so after some writing the leader measures the
// size and replicates the result. One measurement is under way at a time, in pieces that
// read workers read; the rest runs in the tablet's turns.

// sizing records how accurate this replica's count is, the measurement under way, and the row that
// halves the measured size. Only the tablet's turns touch it; read workers get what they need in a
// job.
type sizing struct {
	churn  uint64 // bytes put and deleted since the last measurement
	grown  int64  // bytes put less those of deleted keys, independent of measurements
	value  uint64 // average bytes of a value, for deletions
	halved bool   // half is known
	half   string // the row that halves the measured size; empty: there is none
	run    *measuring
	// The last measurement may be far off, since bytes changed during it, or could not be proposed.
	// The tablet measures again when nothing is in flight.
	again bool
}

// measuring is a measurement under way. Weights are kept in the order of the walk until
// halve sorts them.
type measuring struct {
	place   store.WeighPlace
	weights []store.Weight
	step    uint64 // bytes per weight
	began   int64  // grown when it began
	doubt   uint64 // bytes that were counted and may not have been visible at the start
}

const (
	weighKeys  = 4 << 10  // keys read in one piece
	weighStep  = 64 << 10 // initial bytes per weight
	maxWeights = 8 << 10  // when there are more, neighbours are joined
	// The pause before the next piece is weighPause times the duration of the last one, at
	// most longestWeighPause.
	weighPause        = 9
	longestWeighPause = 200 * time.Millisecond
	// The size is measured again once the bytes put and deleted since the last measurement are
	// one part in remeasurePart of it, and at least remeasureLeast.
	remeasurePart  = 2
	remeasureLeast = 4 << 20
	// A measurement is repeated if more than one part in doubtPart of it may have been
	// counted twice or not at all.
	doubtPart = 32
)

// applied records the changes of an entry, to decide when to measure next.
func (s *sizing) applied(c *change) {
	for _, f := range c.effects {
		s.count(f)
	}
	if c.measured {
		s.churn = 0
	}
}

func (s *sizing) count(f *wire.Effect) {
	if !store.Weighed(f.Key) {
		return
	}
	key, value := uint64(len(f.Key)), uint64(len(f.Value))
	if f.Delete {
		s.grown -= int64(key)
		s.churn += key + s.value
		return
	}
	s.grown += int64(key + value)
	s.churn += key + value
	// A moving average in unsigned steps: one of the two terms is zero.
	s.value += (value - min(value, s.value)) / valueShare
	s.value -= (s.value - min(value, s.value)) / valueShare
}

// valueShare is the reciprocal of the newest value's weight in the average.
const valueShare = 16

// measure begins a measurement if one is due. It is due also while the row that halves the tablet
// is unknown, if the size has reached above, in bytes; an above of 0 means never. The replica
// leads.
func (s *sizing) measure(t *state, inflight []*proposal, above uint64, workers *readStages) {
	due := t.rough || s.churn >= max(t.bytes/remeasurePart, remeasureLeast) ||
		(above != 0 && t.bytes >= above && !s.halved) || (s.again && len(inflight) == 0)
	if !due || s.run != nil {
		return
	}
	s.again = false
	s.run = &measuring{step: weighStep, began: s.grown, doubt: putBytes(inflight)}
	s.run.weigh(t.descriptor, workers)
}

// weigh measures the next piece on a read worker, which sends the result to the tablet.
func (r *measuring) weigh(d *pb.TabletDescriptor, workers *readStages) {
	shared, span, place, step := workers.Shared, wire.SpanOf(d), r.place, r.step
	workers.background.Submit(func() {
		begin := time.Now()
		snap := shared.Store.Snap()
		defer snap.Close()
		out := &weighed{of: r}
		out.weights, out.place, out.err = snap.Weigh(span, place, weighKeys, step)
		out.spent = time.Since(begin)
		shared.Send(out)
	})
}

// found records the weights of one piece. The next one is delayed so that measuring uses
// about a tenth of a worker's time, or more where a piece takes long (longestWeighPause). After the
// last piece it returns the measured bytes, including what was applied since the measurement began.
func (s *sizing) found(m *weighed, self *mailbox) (bytes uint64, last bool) {
	r := s.run
	if r.add(m.weights); !m.place.Done() {
		r.place = m.place
		time.AfterFunc(min(weighPause*m.spent, longestWeighPause), func() { self.send(&measureNext{r}) })
		return 0, false
	}
	s.run = nil
	total, half := r.halve()
	s.half, s.halved = half, true
	// What was in flight at the start or has changed since may be counted twice or not at all.
	s.again = r.doubt+uint64(max(s.grown-r.began, r.began-s.grown)) > total/doubtPart
	return uint64(max(int64(total)+s.grown-r.began, 0)), true
}

// weighed is the result of one piece of a measurement. place is the start of the next piece.
type weighed struct {
	of      *measuring
	place   store.WeighPlace
	weights []store.Weight
	spent   time.Duration
	err     error
}

// measureNext triggers the measurement of the next piece, unless it was abandoned.
type measureNext struct{ of *measuring }

// onWeighed handles the result of one piece. After the last one it proposes the size.
func (t *Tablet) onWeighed(m *weighed) {
	if t.sizing.run != m.of {
		return // abandoned, by a split or with the leadership
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	bytes, last := t.sizing.found(m, t.self)
	switch {
	case !last:
	case t.barrier.op != nil: // nothing may be proposed now; measure again later
		t.sizing.again = true
	default:
		p := t.newProposal()
		// As of the proposed entry: including what precedes it in the log and is not counted yet.
		p.command.Sized = &wire.Sized{
			Bytes: bytes + putBytes(t.pipeline.inflight[t.pipeline.matched:]),
		}
		t.propose(p)
		t.ready()
	}
}

// putBytes returns the bytes that the proposals put.
func putBytes(proposals []*proposal) (n uint64) {
	for _, p := range proposals {
		for _, f := range p.command.Effects {
			if store.Weighed(f.Key) {
				n += uint64(len(f.Key) + len(f.Value))
			}
		}
	}
	return n
}

// add records the weights of a piece. If there are too many it joins neighbours and doubles
// the step.
func (r *measuring) add(weights []store.Weight) {
	r.weights = append(r.weights, weights...)
	if len(r.weights) <= maxWeights {
		return
	}
	kept := r.weights[:0]
	for i, w := range r.weights {
		// Rows ascend within a group; where they descend, the next group begins.
		if i%2 == 1 && kept[len(kept)-1].Row <= w.Row {
			kept[len(kept)-1].Bytes += w.Bytes
		} else {
			kept = append(kept, w)
		}
	}
	r.weights, r.step = kept, 2*r.step
}

// halve returns the sum of the weights and the last row, except the first, with at most half of
// that sum before it. If there is none it returns the second row; "" if there is only one.
func (r *measuring) halve() (total uint64, half string) {
	slices.SortStableFunc(r.weights, func(a, b store.Weight) int {
		return strings.Compare(a.Row, b.Row)
	})
	for _, w := range r.weights {
		total += w.Bytes
	}
	before := uint64(0)
	for i, w := range r.weights {
		if i > 0 && w.Row > r.weights[0].Row && (half == "" || 2*before <= total) {
			half = w.Row
		}
		before += w.Bytes
	}
	return total, half
}
