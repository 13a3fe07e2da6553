package route

import (
	"cmp"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// The tablet map in memory. The actors of tablets record their ranges and whether they lead.
// Carriers, on any goroutine, record the leaders and ranges in responses, and look up a route for
// every operation. A read-write mutex guards the map, held for a few instructions, except to sort
// the map after a change and to forget a node; descriptors are shared and never changed.

// TabletPort takes operations to a replica on this node.
type TabletPort = actorkit.Port[*pb.TabletRequest, *pb.TabletResponse]

// Router is the node's tablet map: the range of each tablet, the ports of the replicas
// that this node holds, and the believed leader of each tablet. Meta's records are the
// ground truth. The router holds all of them as they were some time ago, and what tablets
// have reported since. It is safe for concurrent use.
type Router struct {
	mu      sync.RWMutex
	routes  map[uint64]route
	sorted  []*pb.TabletDescriptor   // by start; nil: to be sorted again
	merged  map[uint64]wire.Position // by tablet whose rows another one has now: where it began
	refresh refresh

	changes atomic.Uint64 // counts changes of routes; raised after each
}

// route is the known state of one tablet.
type route struct {
	descriptor *pb.TabletDescriptor // nil: none is known
	port       *TabletPort          // nil: no replica is here
	leader     uint64               // a hint: the node that is believed to lead; 0 if unknown
	own        uint64               // this node while its own replica leads, else 0
}

// maxRoutes bounds the map: more tablets than a cluster can have.
const maxRoutes = 1 << 20

// NewRouter returns an empty map.
func NewRouter() *Router {
	return &Router{
		routes: map[uint64]route{}, merged: map[uint64]wire.Position{}, refresh: refresh{turn: make(chan struct{}, 1)}}
}

// Attach makes a replica of this node reachable.
func (r *Router) Attach(id uint64, p *TabletPort) {
	r.change(id, func(at *route) { at.port = p })
}

// Detach removes the port of a replica that this node no longer has. The tablet's descriptor and
// leader stay in the map.
func (r *Router) Detach(id uint64) {
	r.change(id, func(at *route) { at.port, at.own = nil, 0 })
}

// SetLeading records that this node's replica leads from now on. Later hints may change Leader but
// not LeadsHere, because an answer from before its election may arrive late.
func (r *Router) SetLeading(id, self uint64) {
	r.change(id, func(at *route) { at.leader, at.own = self, self })
}

// SetFollowing records that this node's replica follows node, or knows no leader if node
// is 0.
func (r *Router) SetFollowing(id, node uint64) {
	if at := r.route(id); at.leader != node || at.own != 0 {
		r.change(id, func(at *route) { at.leader, at.own = node, 0 })
	}
}

// HintLeader records the hint that node leads the tablet; 0 means that no leader is
// known. A wrong hint costs one request: the answer names the leader.
func (r *Router) HintLeader(id, node uint64) {
	if r.route(id).leader != node {
		r.change(id, func(at *route) { at.leader = node })
	}
}

// ForgetLeader removes the hint that node leads the tablet, if that is the present hint. It keeps
// the report of this node's own replica.
func (r *Router) ForgetLeader(id, node uint64) {
	believed := func(at route) bool { return at.leader == node && at.own != node }
	if believed(r.route(id)) {
		r.change(id, func(at *route) {
			if believed(*at) {
				at.leader = 0
			}
		})
	}
}

// ForgetNode removes all hints that node leads a tablet. It is called when the node is
// known dead.
func (r *Router) ForgetNode(node uint64) {
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

// LeadsHere reports whether this node's replica leads the tablet. Routes follow Leader,
// which is a hint. The duties of a leader's node follow LeadsHere, which no hint changes.
func (r *Router) LeadsHere(id uint64) bool { return r.route(id).own != 0 }

// LedHere returns, in range order, the tablets whose replica on this node leads.
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

// change applies fn to the route of a tablet. A route that has become empty is removed; a
// new one is dropped when the map is full, and kept is then false.
func (r *Router) change(id uint64, fn func(*route)) (kept bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.changes.Add(1)
	at, known := r.routes[id]
	fn(&at)
	switch {
	case at == (route{}):
		delete(r.routes, id)
	case known || len(r.routes) < maxRoutes:
		r.routes[id] = at
	default:
		return false
	}
	return true
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

// Update stores a tablet's descriptor unless one with a higher or equal epoch is known.
// It reports whether the map has changed; a full map drops a new tablet.
func (r *Router) Update(d *pb.TabletDescriptor) bool {
	if d == nil {
		return false
	}
	if have := r.route(d.TabletId).descriptor; have != nil && have.Epoch >= d.Epoch {
		return false
	}
	news := false
	kept := r.change(d.TabletId, func(at *route) {
		if news = at.descriptor == nil || at.descriptor.Epoch < d.Epoch; news {
			at.descriptor = d
			r.sorted = nil
		}
	})
	return news && kept
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
		all := make([]*pb.TabletDescriptor, 0, len(r.routes))
		for _, at := range r.routes {
			if at.descriptor != nil {
				all = append(all, at.descriptor)
			}
		}
		var gone []*pb.TabletDescriptor
		r.sorted, gone = Present(all)
		for _, d := range gone {
			r.forgetLocked(d)
		}
	}
	return r.sorted
}

// forgetLocked removes the descriptor of a tablet whose rows another has, and records where it
// started.
func (r *Router) forgetLocked(d *pb.TabletDescriptor) {
	defer r.changes.Add(1)
	at := r.routes[d.TabletId]
	at.descriptor = nil
	if r.routes[d.TabletId] = at; at == (route{}) {
		delete(r.routes, d.TabletId)
	}
	if len(r.merged) >= maxMerged {
		clear(r.merged) // a lookup of one of them reads the map from meta
	}
	r.merged[d.TabletId] = wire.StartOf(d)
}

// maxMerged bounds the remembered starts of merged tablets.
const maxMerged = 1 << 16

// Present sorts the descriptors by where they begin, in place, and splits off those of tablets that
// were merged into others, which it infers from the others' descriptors. Tablets split and merge,
// and a map has descriptors from before and after: of two that hold a row the one with the higher
// epoch is the newer, and a tablet holds the row at which it begins for as long as it exists.
func Present(all []*pb.TabletDescriptor) (present, gone []*pb.TabletDescriptor) {
	slices.SortFunc(all, func(a, b *pb.TabletDescriptor) int {
		return cmp.Or(ByStart(a, b), cmp.Compare(b.GetEpoch(), a.GetEpoch()))
	})
	present = all[:0]
	var open []*pb.TabletDescriptor // tablets that begin at or before d and end after its start
	for i := range all {
		d := all[i]
		start := wire.StartOf(d)
		open = slices.DeleteFunc(open, func(o *pb.TabletDescriptor) bool {
			end, bounded := wire.EndOf(o)
			return bounded && !start.Less(end)
		})
		superseded := slices.ContainsFunc(open, func(o *pb.TabletDescriptor) bool { return wire.Supersedes(o, d) })
		open = append(open, d)
		if superseded {
			gone = append(gone, d)
		} else {
			present = append(present, d)
		}
	}
	return present, gone
}

// Now returns the newest known descriptor of the tablet of d. If that tablet was merged or is not
// known, Now returns the descriptor of the tablet that holds the first row of d, nil if none is
// known.
func (r *Router) Now(d *pb.TabletDescriptor) *pb.TabletDescriptor {
	if now := r.mergedInto(d.GetTabletId()); now != nil {
		return now
	}
	if now := r.Descriptor(d.GetTabletId()); now != nil || wire.EmptyRange(d) {
		return now
	}
	start := wire.StartOf(d)
	if held := r.Locate(start.Table, start.Row, 1); len(held) > 0 {
		return held[0]
	}
	return nil
}

// mergedInto returns the tablet that now holds the start of the tablet with the id, if this node
// knows that the latter was merged; otherwise nil.
func (r *Router) mergedInto(id uint64) *pb.TabletDescriptor {
	r.inOrder()
	r.mu.RLock()
	at, ok := r.merged[id]
	r.mu.RUnlock()
	if !ok {
		return nil
	}
	if held := r.Locate(at.Table, at.Row, 1); len(held) > 0 && held[0].TabletId != id {
		return held[0]
	}
	return nil
}

// ByStart orders tablets by where they begin.
func ByStart(a, b *pb.TabletDescriptor) int {
	return wire.StartOf(a).Compare(wire.StartOf(b))
}

// Locate returns up to limit descriptors (at least 1) in range order, beginning with the one that
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
