package reads

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/group"
)

// Batch contains reads that share one ReadIndex, such as those of one flush.
type Batch struct {
	Epoch uint64    // the calls were checked under it
	Until time.Time // deadline of the wait for the index; zero: none
	Calls []*Call

	id    uint64 // the ReadIndex context
	index uint64 // 0: unknown
}

// Indexes are the batches that wait for their ReadIndex, and for it to be visible, in order of
// arrival. Only the tablet's turns use them. The zero value is empty.
type Indexes struct {
	batches []*Batch
	last    uint64 // the last id
}

// Len returns the number of batches.
func (q *Indexes) Len() int { return len(q.batches) }

// Add adds the batch and returns its id for Group.ReadIndex. Ids are not reused.
func (q *Indexes) Add(b *Batch) (id uint64) {
	q.last++
	b.id = q.last
	q.batches = append(q.batches, b)
	return b.id
}

// Answered records the index that a ReadIndex has returned. It ignores a batch that was removed
// before. 0 means unknown, so the index is at least 1.
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

// Expired removes and returns the batches past their deadline, and reports whether others with
// a deadline still wait. Those of a single voter or under a lease have none, since no other replica
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
