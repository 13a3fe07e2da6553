package lockd

import (
	"container/heap"
	"time"
)

// table is the lock table: keys by owner with a lease. It belongs to the actor. Time is
// an argument.
type table struct {
	max     int
	entries map[string]*entry
	leases  leaseHeap
}

type entry struct {
	key   string
	owner uint64
	until time.Time
	index int // in leases
}

func newTable(maxEntries int) *table {
	return &table{max: maxEntries, entries: make(map[string]*entry)}
}

// grant is how a try ended.
type grant uint8

const (
	granted   grant = iota
	renewed         // the same owner had it: the lease is moved forward
	unstored        // granted, but the table is full: not recorded
	heldByAny       // another owner has it
)

// try takes the key for the owner until the given time.
func (t *table) try(key string, owner uint64, until time.Time) grant {
	if e, ok := t.entries[key]; ok {
		if e.owner != owner {
			return heldByAny
		}
		if until.After(e.until) {
			e.until = until
			heap.Fix(&t.leases, e.index)
		}
		return renewed
	}
	if len(t.entries) >= t.max {
		return unstored
	}
	e := &entry{key: key, owner: owner, until: until}
	t.entries[key] = e
	heap.Push(&t.leases, e)
	return granted
}

// unlock gives the key back if the owner has it.
func (t *table) unlock(key string, owner uint64) bool {
	e, ok := t.entries[key]
	if !ok || e.owner != owner {
		return false
	}
	heap.Remove(&t.leases, e.index)
	delete(t.entries, key)
	return true
}

// forget drops the locks of the owners first to last.
func (t *table) forget(first, last uint64) {
	for key, e := range t.entries {
		if e.owner >= first && e.owner <= last {
			heap.Remove(&t.leases, e.index)
			delete(t.entries, key)
		}
	}
}

// expire drops the locks whose lease has ended and returns how many there were.
func (t *table) expire(now time.Time) int {
	n := 0
	for len(t.leases) > 0 && !t.leases[0].until.After(now) {
		e := heap.Pop(&t.leases).(*entry)
		delete(t.entries, e.key)
		n++
	}
	return n
}

// leaseHeap has the lease that ends first on top.
type leaseHeap []*entry

// Len, Less, Swap, Push and Pop are container/heap's.
func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
