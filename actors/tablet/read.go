package tablet

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/evaluate"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// readBatch is the reads of one flush: they share one ReadIndex.
type readBatch struct {
	id    uint64 // the ReadIndex context, never used again
	index uint64 // 0: not known yet
	epoch uint64 // the calls were checked under it
	until time.Time
	calls []*Call
	snap  *store.Snap // only in the broken build that opens it too early
}

// read asks Raft for the index that the reads must see.
func (t *Tablet) read(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	t.counters.reads += uint64(len(calls))
	t.readCounter++
	b := &readBatch{id: t.readCounter, epoch: t.descriptor.Epoch, calls: calls}
	if broken.EarlyTxn {
		b.snap = t.store.Snap()
	}
	t.pendingReads = append(t.pendingReads, b)
	if broken.NoReadIndex {
		b.index = 1
		t.dispatchReads()
		return
	}
	t.group.ReadIndex(b.id)
	if !t.group.Single() { // the others are asked, and asked again with every heartbeat
		b.until = time.Now().Add(t.cfg.MaxWait)
		t.armSweep()
	}
}

// giveUpReads ends the waits for a ReadIndex that have run out, and reports whether others wait.
func (t *Tablet) giveUpReads(now time.Time) (waiting bool) {
	t.pendingReads = slices.DeleteFunc(t.pendingReads, func(b *readBatch) bool {
		if b.until.IsZero() || now.Before(b.until) {
			waiting = waiting || !b.until.IsZero()
			return false
		}
		for _, call := range b.calls {
			call.Reply(failure(pb.Error_CODE_UNAVAILABLE, "tablet %d: its replicas did not confirm its leadership within %v", t.id, t.cfg.MaxWait))
		}
		return true
	})
	return waiting
}

// onRead notes the index of a ReadIndex that has returned.
func (t *Tablet) onRead(r group.Read) {
	for _, b := range t.pendingReads {
		if b.id == r.ID {
			b.index = max(r.Index, 1)
		}
	}
	t.dispatchReads()
}

// dispatchReads hands on the batches whose index is visible.
func (t *Tablet) dispatchReads() {
	kept := t.pendingReads[:0]
	for _, b := range t.pendingReads {
		if b.index == 0 || !t.group.CaughtUp(b.index) {
			kept = append(kept, b)
			continue
		}
		t.dispatch(b)
	}
	clear(t.pendingReads[len(kept):])
	t.pendingReads = kept
}

// dispatch lets the reads of a batch go to the read workers.
func (t *Tablet) dispatch(b *readBatch) {
	if b.epoch != t.descriptor.Epoch { // range and replicas have changed while the others were asked
		b.calls = t.stillOurs(b.calls)
	}
	reads := b.calls[:0] // the batch is the tablet's own
	for _, call := range b.calls {
		if _, ok := call.Req.Op.(*pb.TabletRequest_Mark); ok {
			call.Reply(t.markResponse())
			continue
		}
		reads = append(reads, call)
	}
	if len(reads) == 0 {
		return
	}
	t.reads.add(reads, t.descriptor.Epoch, b.snap)
	t.submitReads()
}

// capture is what reads are answered from, taken in one actor turn. All of it is immutable.
type capture struct {
	tablet           *Tablet // for what does not change, and servedTerm
	term             uint64
	epoch            uint64
	descriptor       *pb.TabletDescriptor
	catalogue        *catalogue
	locks            *lockTable
	bound, safepoint mvcc.Timestamp
	notifies         uint64
	notify           map[columnKey]notifyView // the columns that these reads look at
	snap             *store.Snap
}

// readView is the view of reads: the captured locks over a Badger Txn opened after the capture.
type readView struct {
	*store.Snap
	capture
	room, taken int // for values in the answer to the call under way, and by those that are in it, in bytes
}

var _ evaluate.View = (*readView)(nil)

// Descriptor implements evaluate.View, as do Limits, Observers, Notified and Row.
func (v *readView) Descriptor() *pb.TabletDescriptor { return v.descriptor }
func (v *readView) Limits() mvcc.Limits              { return v.tablet.cfg.Limits }
func (v *readView) Observers() []*pb.ObserverInfo    { return v.catalogue.message.GetObservers() }
func (v *readView) Notified() uint64                 { return v.notifies }
func (v *readView) Row(t mvcc.TableID, row string, limit int, only ...mvcc.Cell) ([]mvcc.HistoryEntry, error) {
	return v.Snap.Row(t, row, limit, v.catalogue.columnsOf(t), only...)
}

func (v *readView) Lock(c mvcc.Cell) (mvcc.Lock, bool) { return v.locks.get(c) }
func (v *readView) Locks(s mvcc.Span, reverse bool) iter.Seq2[mvcc.Cell, mvcc.Lock] {
	return v.locks.all(s, reverse)
}
func (v *readView) Observed(t mvcc.TableID, column string) mvcc.Observed {
	return v.catalogue.observed(t, column)
}

// errNoRoom is the end of a read whose long values do not fit into what the request
// allows for its answer.
type errNoRoom struct{ needs int } // bytes of values, so far

func (e *errNoRoom) Error() string { return fmt.Sprintf("the answer has values of %d bytes", e.needs) }

// forCall begins the answer to a call.
func (v *readView) forCall(req *pb.TabletRequest) {
	v.room, v.taken = math.MaxInt, 0
	if most := req.GetMaxAnswerBytes(); most > 0 {
		v.room = int(most)
	}
}

// Data implements mvcc.View. A long value that there is no room for is not read: a client
// that asks for many at once must not take the workers' time and the node's memory for
// answers that are thrown away.
func (v *readView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	value, n, ok, err := v.DataWithin(c, start, v.room-v.taken)
	v.taken += n
	if err == nil && v.taken > v.room {
		return nil, false, &errNoRoom{needs: v.taken}
	}
	return value, ok, err
}

func (v *readView) Bound() mvcc.Timestamp     { return v.bound }
func (v *readView) Safepoint() mvcc.Timestamp { return v.safepoint }
