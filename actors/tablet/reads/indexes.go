package reads

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
)

// Batch is the reads of one flush. They share one ReadIndex.
type Batch struct {
	Epoch uint64    // the calls were checked under it
	Until time.Time // when the wait for the index ends; zero: never
	Calls []*Call

	id    uint64 // the ReadIndex context
	index uint64 // 0: not known yet
}

// Indexes are the batches that wait for their ReadIndex, and for it to be visible, in the order
// in which they came. Only the tablet's turns use them. The zero value is empty.
type Indexes struct {
	batches []*Batch
	last    uint64 // the last id
}

// Len returns the number of batches.
func (q *Indexes) Len() int { return len(q.batches) }

// Add adds the batch and returns its id for Group.ReadIndex, which is never used again.
func (q *Indexes) Add(b *Batch) (id uint64) {
	q.last++
	b.id = q.last
	q.batches = append(q.batches, b)
	return b.id
}

// Answered records the index of a ReadIndex that has returned. A batch that has gone
// meanwhile is not found. 0 means unknown, so the index is 1 at least.
func (q *Indexes) Answered(r group.Read) {
	for _, b := range q.batches {
		if b.id == r.ID {
			b.index = max(r.Index, 1)
		}
	}
}

// Next removes and returns the first batch whose index is known and visible, or nil.
func (q *Indexes) Next(g *group.Group) *Batch {
	for i, b := range q.batches {
		if b.index != 0 && g.CaughtUp(b.index) {
			q.batches = slices.Delete(q.batches, i, i+1)
			return b
		}
	}
	return nil
}

// Expired removes and returns the batches whose wait has run out, and reports whether
// others that may run out still wait. Those of a single voter have no limit: nobody else
// is asked.
func (q *Indexes) Expired(now time.Time) (expired []*Batch, waiting bool) {
	q.batches = slices.DeleteFunc(q.batches, func(b *Batch) bool {
		if b.Until.IsZero() || now.Before(b.Until) {
			waiting = waiting || !b.Until.IsZero()
			return false
		}
		expired = append(expired, b)
		return true
	})
	return expired, waiting
}

// Clear removes all batches and returns their calls.
func (q *Indexes) Clear() (calls [][]*Call) {
	for _, b := range q.batches {
		calls = append(calls, b.Calls)
	}
	q.batches = nil
	return calls
}
