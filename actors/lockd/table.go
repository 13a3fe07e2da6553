package lockd

import (
	"container/heap"
	"time"
)

// table is the lock table: the owner and lease of each locked key. Only the actor's
// goroutine uses it. It reads no clock; callers pass the time.
type table struct {
	max     int               // limit of len(entries)
	entries map[string]*entry // by key
	leases  leaseHeap         // heap of the same entries, by end of lease
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

// grant is the result of try.
type grant uint8

const (
	granted     grant = iota // also if the owner already held the key: the later end of the lease counts
	unrecorded               // granted, but not recorded because the table is full
	heldByOther              // refused: another owner holds the key
)

// try locks the key for the owner until the given time. It never shortens a lease.
func (t *table) try(key string, owner uint64, until time.Time) grant {
	if e, ok := t.entries[key]; ok {
		if e.owner != owner {
			return heldByOther
		}
		if until.After(e.until) {
			e.until = until
			heap.Fix(&t.leases, e.index)
		}
		return granted
	}
	if len(t.entries) >= t.max {
		return unrecorded
	}
	e := &entry{key: key, owner: owner, until: until}
	t.entries[key] = e
	heap.Push(&t.leases, e)
	return granted
}

// unlock removes the lock of the key if the owner holds it.
func (t *table) unlock(key string, owner uint64) {
	if e, ok := t.entries[key]; ok && e.owner == owner {
		t.remove(e)
	}
}

func (t *table) remove(e *entry) {
	heap.Remove(&t.leases, e.index)
	delete(t.entries, e.key)
}

// forget removes the locks of the owners first to last. It scans all entries.
func (t *table) forget(first, last uint64) {
	for _, e := range t.entries {
		if e.owner >= first && e.owner <= last {
			t.remove(e)
		}
	}
}

// expire removes the locks whose lease has ended and returns their number.
func (t *table) expire(now time.Time) (n int) {
	for ; len(t.leases) > 0 && !t.leases[0].until.After(now); n++ {
		t.remove(t.leases[0])
	}
	return n
}

// leaseHeap is a container/heap with the lease that ends first at index 0.
type leaseHeap []*entry

// Len, Less, Swap, Push and Pop implement heap.Interface.
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
