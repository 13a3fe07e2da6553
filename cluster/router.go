package cluster

import (
	"slices"
	"sort"
	"sync"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// TabletPort is how operations reach a tablet of this node.
type TabletPort = actorkit.Port[*pb.TabletRequest, *pb.TabletResponse]

// Router is the node's tablet map: what ranges there are, and the ports of the tablets that this node holds. Safe for
// concurrent use.
type Router struct {
	mu      sync.RWMutex
	ports   map[uint64]*TabletPort
	tablets map[uint64]*pb.TabletDescriptor
	sorted  []*pb.TabletDescriptor // by start; nil: to be sorted again
}

// NewRouter returns an empty map.
func NewRouter() *Router {
	return &Router{ports: map[uint64]*TabletPort{}, tablets: map[uint64]*pb.TabletDescriptor{}}
}

// Attach makes a tablet of this node reachable.
func (r *Router) Attach(id uint64, p *TabletPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ports[id] = p
}

// Port is the port of a tablet of this node; nil if it is not here.
func (r *Router) Port(id uint64) *TabletPort {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ports[id]
}

// Held are the ids of the tablets that this node holds.
func (r *Router) Held() []uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]uint64, 0, len(r.ports))
	for id := range r.ports {
		out = append(out, id)
	}
	return out
}

// Update takes what a tablet says of itself, unless a higher epoch is known. It reports whether that was news.
func (r *Router) Update(d *pb.TabletDescriptor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.tablets[d.TabletId]; have != nil && have.Epoch >= d.Epoch {
		return false
	}
	r.tablets[d.TabletId] = d
	r.sorted = nil
	return true
}

// All are the descriptors in range order. The slice is the caller's, the descriptors are shared and immutable.
func (r *Router) All() []*pb.TabletDescriptor { return slices.Clone(r.inOrder()) }

func (r *Router) inOrder() []*pb.TabletDescriptor {
	r.mu.RLock()
	sorted := r.sorted
	r.mu.RUnlock()
	if sorted != nil {
		return sorted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sorted == nil {
		r.sorted = make([]*pb.TabletDescriptor, 0, len(r.tablets))
		for _, d := range r.tablets {
			r.sorted = append(r.sorted, d)
		}
		slices.SortFunc(r.sorted, func(a, b *pb.TabletDescriptor) int {
			if wire.StartOf(a).Less(wire.StartOf(b)) {
				return -1
			}
			return 1
		})
	}
	return r.sorted
}

// Locate returns up to limit descriptors in range order, beginning with the one that holds (table, row); none if no
// tablet is known to hold it.
func (r *Router) Locate(table mvcc.TableID, row string, limit int) []*pb.TabletDescriptor {
	sorted, at := r.inOrder(), wire.Position{Table: table, Row: row}
	next := sort.Search(len(sorted), func(i int) bool { return at.Less(wire.StartOf(sorted[i])) })
	if next == 0 || !wire.Holds(sorted[next-1], at) {
		return nil
	}
	end := min(next-1+max(limit, 1), len(sorted))
	return slices.Clone(sorted[next-1 : end])
}
