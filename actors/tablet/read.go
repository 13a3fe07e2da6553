package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file takes reads from their batch to the queue of the read workers. The reads of a
// batch share one ReadIndex: the group confirms that this replica still leads, and
// returns the index that the reads must see; they go on when it is visible. Any number of
// batches may wait so, within the QueueLimit of the port, and a sweep ends waits that
// nobody confirms. All of it runs in the tablet's turns.

// readBatch is the reads of one flush: they share one ReadIndex.
type readBatch struct {
	id    uint64 // the ReadIndex context, never used again
	index uint64 // 0: not known yet
	epoch uint64 // the calls were checked under it
	until time.Time
	calls []*Call
}

// read asks Raft for the index that the calls must see. They must have been checked in
// this turn.
func (t *Tablet) read(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	t.counters.reads += uint64(len(calls))
	b := &readBatch{epoch: t.descriptor.Epoch, calls: calls}
	t.asked.add(b)
	t.group.ReadIndex(b.id)
	if !t.group.Single() { // the others are asked, and asked again with every heartbeat
		b.until = time.Now().Add(t.cfg.MaxWait)
		t.armSweep()
	}
}

// dispatchReads hands on the batches whose index is known and visible.
func (t *Tablet) dispatchReads() {
	for _, b := range t.asked.due(t.group.CaughtUp) {
		t.dispatch(b)
	}
}

// readIndexes are the batches that wait for their ReadIndex, in the order of their ids.
// Only the tablet's turns touch them.
type readIndexes struct {
	batches []*readBatch
	last    uint64 // id that was given to one
}

// add gives the batch its id and keeps it.
func (q *readIndexes) add(b *readBatch) {
	q.last++
	b.id = q.last
	q.batches = append(q.batches, b)
}

// answered records the index of a ReadIndex that has returned. A batch that has gone
// meanwhile is not found. 0 means unknown, so the index is 1 at least.
func (q *readIndexes) answered(r group.Read) {
	for _, b := range q.batches {
		if b.id == r.ID {
			b.index = max(r.Index, 1)
		}
	}
}

// due removes and returns the batches whose index is known and visible.
func (q *readIndexes) due(visible func(index uint64) bool) (due []*readBatch) {
	q.batches = slices.DeleteFunc(q.batches, func(b *readBatch) bool {
		if b.index == 0 || !visible(b.index) {
			return false
		}
		due = append(due, b)
		return true
	})
	return due
}

// expired removes and returns the batches whose wait has run out, and reports whether
// others that may run out still wait. Those of a single voter have no limit: nobody else
// is asked.
func (q *readIndexes) expired(now time.Time) (expired []*readBatch, waiting bool) {
	q.batches = slices.DeleteFunc(q.batches, func(b *readBatch) bool {
		if b.until.IsZero() || now.Before(b.until) {
			waiting = waiting || !b.until.IsZero()
			return false
		}
		expired = append(expired, b)
		return true
	})
	return expired, waiting
}

// dispatch gives the reads of a batch to the read workers, and answers the oracle's
// questions for the mark, which need none.
func (t *Tablet) dispatch(b *readBatch) {
	// The range or the replicas have changed while the index was awaited.
	if b.epoch != t.descriptor.Epoch {
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
	t.reads.add(reads, t.descriptor.Epoch)
	t.submitReads()
}
