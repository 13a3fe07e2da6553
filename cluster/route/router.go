package route

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file holds the tablet map in memory. Tablets' actors say what they hold and
// whether they lead; carriers on any goroutine say what answers taught them; both look up
// routes for every operation. A read-write mutex guards it, held for a few instructions
// each time; descriptors are shared and never changed.

// TabletPort takes operations to a replica on this node.
type TabletPort = actorkit.Port[*pb.TabletRequest, *pb.TabletResponse]

// Router is the node's tablet map: what ranges there are, the ports of the replicas that
// this node holds, and who is believed to lead each tablet. Meta's records are the ground
// truth; the router holds all of them, as of some time ago, and whatever tablets have
// said of themselves since. Safe for concurrent use.
type Router struct {
	mu     sync.RWMutex
	routes map[uint64]route
	sorted []*pb.TabletDescriptor // by start; nil: to be sorted again
	news   refresh

	changes atomic.Uint64 // of routes; behind every change
}

// route is what is known of one tablet.
type route struct {
	descriptor *pb.TabletDescriptor // nil: none is known
	port       *TabletPort          // nil: no replica is here
	leader     uint64               // the node that is believed to lead; 0: not known. A hint
	own        uint64               // this node, while its replica says that it leads; else 0
}

// maxRoutes bounds the map: more tablets than a cluster can have.
const maxRoutes = 1 << 20

// NewRouter returns an empty map.
func NewRouter() *Router { return &Router{routes: map[uint64]route{}} }

// Attach makes a replica of this node reachable.
func (r *Router) Attach(id uint64, p *TabletPort) {
	r.change(id, func(at *route) { at.port = p })
}

// Detach forgets the port of a replica that this node no longer has. The tablet stays
// known.
func (r *Router) Detach(id uint64) {
	r.change(id, func(at *route) { at.port, at.own = nil, 0 })
}

// Leads records the word of this node's replica that it leads from now on. Hints do not
// take that back: an answer from before its election may still be on its way.
func (r *Router) Leads(id, self uint64) {
	r.change(id, func(at *route) { at.leader, at.own = self, self })
}

// Follows records the word of this node's replica that it does not lead but node does, 0
// if it knows of none.
func (r *Router) Follows(id, node uint64) {
	if at := r.route(id); at.leader != node || at.own != 0 {
		r.change(id, func(at *route) { at.leader, at.own = node, 0 })
	}
}

// Led records the hint that node leads the tablet, 0 that nobody is known to. Whoever
// follows a wrong hint learns better.
func (r *Router) Led(id, node uint64) {
	if r.route(id).leader != node {
		r.change(id, func(at *route) { at.leader = node })
	}
}

// Unled forgets that node leads the tablet, if that is what is believed and not the word
// of a replica here.
func (r *Router) Unled(id, node uint64) {
	believed := func(at route) bool { return at.leader == node && at.own != node }
	if believed(r.route(id)) {
		r.change(id, func(at *route) {
			if believed(*at) {
				at.leader = 0
			}
		})
	}
}

// Lost forgets that node leads anything, because it is known dead.
func (r *Router) Lost(node uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changes.Add(1)
	for id, at := range r.routes {
		if at.leader == node {
			at.leader = 0
			r.routes[id] = at
		}
	}
}

// Version returns a number, never 0, that changes whenever the map does.
func (r *Router) Version() uint64 { return r.changes.Load() + 1 }

// Leader returns the node that is believed to lead the tablet, 0 if none is known.
func (r *Router) Leader(id uint64) uint64 { return r.route(id).leader }

// LeadsHere reports whether this node's replica says that it leads. Leader is what routes
// go by; this is what a node's duties for the tablets that it leads go by, which no hint
// may take from it.
func (r *Router) LeadsHere(id uint64) bool { return r.route(id).own != 0 }

// LedHere returns, in range order, the tablets whose replica on this node says that it
// leads.
func (r *Router) LedHere() []*pb.TabletDescriptor {
	sorted := r.inOrder()
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []*pb.TabletDescriptor
	for _, d := range sorted {
		if r.routes[d.TabletId].own != 0 {
			out = append(out, d)
		}
	}
	return out
}

// change applies fn to what is known of a tablet. An entry that says nothing any more is
// removed; a new one is dropped when the map is full.
func (r *Router) change(id uint64, fn func(*route)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changes.Add(1)
	at, known := r.routes[id]
	fn(&at)
	// Nothing is known any more.
	if at == (route{}) {
		delete(r.routes, id)
	} else if known || len(r.routes) < maxRoutes {
		r.routes[id] = at
	}
}

func (r *Router) route(id uint64) route {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.routes[id]
}

// Port returns the port of this node's replica, nil if there is none.
func (r *Router) Port(id uint64) *TabletPort { return r.route(id).port }

// Held returns the ids of the tablets that this node holds a replica of, in no order.
func (r *Router) Held() []uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []uint64
	for id, at := range r.routes {
		if at.port != nil {
			out = append(out, id)
		}
	}
	return out
}

// Descriptor returns the newest known descriptor of the tablet, nil if there is none.
func (r *Router) Descriptor(id uint64) *pb.TabletDescriptor { return r.route(id).descriptor }

// Update takes what a tablet says of itself, unless a higher or equal epoch is known. It
// reports whether that was news.
func (r *Router) Update(d *pb.TabletDescriptor) bool {
	if d == nil {
		return false
	}
	if have := r.route(d.TabletId).descriptor; have != nil && have.Epoch >= d.Epoch {
		return false
	}
	news := false
	r.change(d.TabletId, func(at *route) {
		if news = at.descriptor == nil || at.descriptor.Epoch < d.Epoch; news {
			at.descriptor = d
			r.sorted = nil
		}
	})
	return news
}

// All returns the descriptors in range order. The slice is the caller's; the descriptors
// are shared and must not be changed.
func (r *Router) All() []*pb.TabletDescriptor { return slices.Clone(r.inOrder()) }

// inOrder returns the descriptors by start, sorted again only after one has changed. The
// slice is shared: it is replaced, never edited.
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
		r.sorted = make([]*pb.TabletDescriptor, 0, len(r.routes))
		for _, at := range r.routes {
			if at.descriptor != nil {
				r.sorted = append(r.sorted, at.descriptor)
			}
		}
		slices.SortFunc(r.sorted, ByStart)
	}
	return r.sorted
}

// ByStart orders tablets by where they begin.
func ByStart(a, b *pb.TabletDescriptor) int {
	switch s, t := wire.StartOf(a), wire.StartOf(b); {
	case s.Less(t):
		return -1
	case t.Less(s):
		return 1
	}
	return 0
}

// Locate returns up to limit descriptors in range order, beginning with the one that
// holds (table, row); none if no tablet is known to hold it.
func (r *Router) Locate(table mvcc.TableID, row string, limit int) []*pb.TabletDescriptor {
	sorted, at := r.inOrder(), wire.Position{Table: table, Row: row}
	next := sort.Search(len(sorted), func(i int) bool { return at.Less(wire.StartOf(sorted[i])) })
	if next == 0 || !wire.Holds(sorted[next-1], at) {
		return nil
	}
	end := min(next-1+max(limit, 1), len(sorted))
	return slices.Clone(sorted[next-1 : end])
}
