// Package tabletmap caches descriptors of tablets on the client's side (design section 8).
package tabletmap

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Map caches part of the tablet map, which maps positions to tablets. Readers take no lock: the
// list is immutable and replaced as a whole. A tablet's answer (CODE_WRONG_TABLET) replaces a
// stale descriptor. A Map is safe for concurrent use.
type Map struct {
	list atomic.Pointer[[]*pb.TabletDescriptor] // sorted by start, without overlap
	mu   sync.Mutex                             // held to replace list
	max  int
}

// New returns an empty map that holds at most limit descriptors.
func New(limit int) *Map { return &Map{max: limit} }

// load returns the current list, which must not be changed.
func (m *Map) load() []*pb.TabletDescriptor {
	if l := m.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Find returns the cached tablet that holds p, or nil.
func (m *Map) Find(p wire.Position) *pb.TabletDescriptor {
	list := m.load()
	i := sort.Search(len(list), func(i int) bool { return p.Less(wire.StartOf(list[i])) })
	if i == 0 || !wire.Holds(list[i-1], p) {
		return nil
	}
	return list[i-1]
}

// FindBefore returns the cached tablet that holds the positions just below p, or nil.
func (m *Map) FindBefore(p wire.Position) *pb.TabletDescriptor {
	list := m.load()
	i := sort.Search(len(list), func(i int) bool { return !wire.StartOf(list[i]).Less(p) })
	if i == 0 {
		return nil
	}
	if end, ok := wire.EndOf(list[i-1]); ok && end.Less(p) {
		return nil
	}
	return list[i-1]
}

// StartsFrom returns p and the starts of the cached tablets after it.
func (m *Map) StartsFrom(p wire.Position) []wire.Position {
	out := []wire.Position{p}
	for _, d := range m.load() {
		if start := wire.StartOf(d); p.Less(start) {
			out = append(out, start)
		}
	}
	return out
}

// Insert adds descriptors. If two overlap, one descends from the other by splits and merges
// and has the higher epoch: the lower one is removed.
func (m *Map) Insert(descriptors ...*pb.TabletDescriptor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Copying the whole list is acceptable: lookups are frequent, and splits rare.
	list := slices.Clone(m.load())
	for _, d := range descriptors {
		if d != nil {
			list = insertOne(list, d)
		}
	}
	if len(list) > m.max {
		list = nil // start over: later lookups refill it
		for _, d := range descriptors[:min(len(descriptors), m.max)] {
			if d != nil {
				list = insertOne(list, d)
			}
		}
	}
	m.list.Store(&list)
}

// insertOne replaces all descriptors that d overlaps by d, unless one of them is newer.
func insertOne(list []*pb.TabletDescriptor, d *pb.TabletDescriptor) []*pb.TabletDescriptor {
	start := wire.StartOf(d)
	lo := sort.Search(len(list), func(i int) bool {
		end, ok := wire.EndOf(list[i])
		return !ok || start.Less(end)
	})
	hi := lo
	// lo..hi are the descriptors that overlap d.
	for end, ok := wire.EndOf(d); hi < len(list) &&
		(!ok || wire.StartOf(list[hi]).Less(end)); hi++ {
		if list[hi].Epoch > d.Epoch {
			return list
		}
	}
	return slices.Replace(list, lo, hi, d)
}

// remove removes d if the map still holds it.
func (m *Map) remove(d *pb.TabletDescriptor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.load()
	if i := slices.Index(list, d); i >= 0 {
		list = slices.Delete(slices.Clone(list), i, i+1)
		m.list.Store(&list)
	}
}

// Heal replaces d by the descriptors of a tablet's answer.
func (m *Map) Heal(d *pb.TabletDescriptor, now []*pb.TabletDescriptor) {
	if len(now) > 0 {
		m.Insert(now...)
	}
	m.remove(d) // if the answer had nothing newer: query meta next time
}
