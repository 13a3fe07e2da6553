package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/broken"
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
