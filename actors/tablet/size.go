package tablet

import (
	"slices"
	"strings"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// sizing is what the leader knows of the tablet's size: a bound from above until somebody asks to measure, then what was
// measured and what has been written since. It belongs to the actor; measuring is done by read workers, in pieces.
type sizing struct {
	known    bool   // base is set
	base     uint64 // bytes when written began to count
	written  uint64 // bytes of keys and values put since; deletions are not seen
	measured bool
	half     string // the row that halves the measured size; empty: there is none
	run      *measuring
}

// measuring is a measurement under way.
type measuring struct {
	place   store.WeighPlace
	weights []store.Weight
	step    uint64 // bytes a weight
	written uint64 // the counter when it began
}

const (
	weighKeys  = 4 << 10  // keys that one piece looks at
	weighStep  = 64 << 10 // bytes in one weight, to begin with
	maxWeights = 8 << 10  // beyond it weights are joined
	// A measurement is worth its reading again after the tablet has taken a part of its size, and so much at least.
	remeasurePart  = 8
	remeasureLeast = 1 << 20
)

// size is about the tablet's bytes, as last measured. above: measure if it may be as large, and little is known.
func (t *Tablet) size(above uint64) uint64 {
	s := &t.sizing
	if !s.known {
		if above == 0 {
			return s.written
		}
		for _, span := range tableSpans(t.descriptor) {
			s.base += t.store.SizeAtMost(span)
		}
		s.known = true
	}
	size := s.base + s.written
	if above != 0 && size >= above && t.leading && s.run == nil &&
		(!s.measured || s.written >= max(s.base/remeasurePart, remeasureLeast)) {
		s.run = &measuring{step: weighStep, written: s.written}
		t.reader.submit(&weighJob{tablet: t, of: s.run, span: tableSpans(t.descriptor)[0], step: weighStep})
	}
	if s.measured {
		return s.base // what was written since may have replaced something
	}
	return size
}

// weighJob measures a piece on a read worker.
type weighJob struct {
	tablet *Tablet
	of     *measuring
	span   mvcc.Span
	place  store.WeighPlace
	step   uint64
}

// weighed is its result.
type weighed struct {
	of      *measuring
	place   store.WeighPlace
	weights []store.Weight
	spent   time.Duration
	err     error
}

func (j *weighJob) run() {
	begin := time.Now()
	snap := j.tablet.store.Snap()
	defer snap.Close()
	out := &weighed{of: j.of}
	out.weights, out.place, out.err = snap.Weigh(j.span, j.place, weighKeys, j.step)
	out.spent = time.Since(begin)
	j.tablet.root.Send(j.tablet.self, out)
}

// weighOn is the reminder to measure the next piece.
type weighOn struct{ of *measuring }

// onWeighOn asks a read worker for the next piece.
func (t *Tablet) onWeighOn(m *weighOn) {
	if r := t.sizing.run; r == m.of && t.leading && t.failed == nil {
		t.reader.submit(&weighJob{tablet: t, of: r, span: tableSpans(t.descriptor)[0], place: r.place, step: r.step})
	}
}

// onWeighed takes a piece; the next one waits so long that measuring takes about a tenth of a worker's time.
func (t *Tablet) onWeighed(m *weighed) {
	s, r := &t.sizing, t.sizing.run
	if r != m.of {
		return // from before a split
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	if r.add(m.weights); !m.place.Done() {
		r.place = m.place
		self, root := t.self, t.root
		time.AfterFunc(min(busyPause*m.spent, longestPause), func() { root.Send(self, &weighOn{r}) })
		return
	}
	total, half := r.halve()
	*s = sizing{known: true, measured: true, base: total, written: s.written - r.written, half: half}
}

// add keeps weights, and joins neighbours when they are too many.
func (r *measuring) add(weights []store.Weight) {
	r.weights = append(r.weights, weights...)
	if len(r.weights) <= maxWeights {
		return
	}
	kept := r.weights[:0]
	for i, w := range r.weights {
		// Rows go up within a group; where they go down, the next group begins.
		if i%2 == 1 && kept[len(kept)-1].Row <= w.Row {
			kept[len(kept)-1].Bytes += w.Bytes
		} else {
			kept = append(kept, w)
		}
	}
	r.weights, r.step = kept, 2*r.step
}

// halve adds the weights up and finds the row that comes nearest to halving them; none if there is but one row.
func (r *measuring) halve() (total uint64, half string) {
	slices.SortStableFunc(r.weights, func(a, b store.Weight) int { return strings.Compare(a.Row, b.Row) })
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

// halved is what is known of a tablet's size after a split: its left side goes on with half of it.
func (s *sizing) halved() sizing {
	return sizing{known: s.known, measured: s.measured, base: (s.base + s.written) / 2}
}
