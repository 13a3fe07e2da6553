package simtest

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// gossip simulates the nodes' knowledge of each other: each has its own view, and learns of a death
// after a delay. A node that is unreachable for that long is also reported dead, until it is reachable
// again.
type gossip struct {
	network *network
	delay   time.Duration // silence after which a node is reported dead

	mu      sync.Mutex
	members map[int]cluster.Member // the newest incarnation of each node, by index
	views   map[int]*view          // of the running nodes, by index
	rumours map[int]time.Time      // the times until which nodes are falsely reported dead
}

// detectPause is the interval between updates of the views.
const detectPause = 50 * time.Millisecond

func newGossip(network *network, delay time.Duration) *gossip {
	return &gossip{
		network: network, delay: delay, members: map[int]cluster.Member{}, views: map[int]*view{},
		rumours: map[int]time.Time{},
	}
}

// join registers a node's new incarnation; others learn of it when they next reach the node.
func (g *gossip) join(index int, self cluster.Member) *view {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[index] = self
	v := &view{
		self: self, alive: map[uint64]cluster.Member{self.NodeID: self},
		dead: map[mvcc.Worker]bool{}, watchers: map[int]func(cluster.MemberEvent){},
	}
	g.views[index] = v
	return v
}

// leave ends a node's view; the others detect its silence.
func (g *gossip) leave(index int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.views, index)
}

// rumour makes all views report a node dead until the given time.
func (g *gossip) rumour(index int, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rumours[index] = until
}

func workerOf(m cluster.Member) mvcc.Worker {
	return mvcc.Worker{Node: m.NodeID, Incarnation: m.Incarnation}
}

// run updates the views until done.
func (g *gossip) run(done <-chan struct{}) {
	tick := time.NewTicker(detectPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.spread()
		case <-done:
			return
		}
	}
}

func (g *gossip) spread() {
	type change struct {
		of    *view
		event cluster.MemberEvent
	}
	var changes []change
	g.mu.Lock()
	now := time.Now()
	views, members := slices.Sorted(maps.Keys(g.views)), slices.Sorted(maps.Keys(g.members))
	for _, a := range views {
		v := g.views[a]
		for _, b := range members {
			if a == b {
				continue
			}
			m := g.members[b]
			silent := g.network.silent(a, b)
			believed := g.rumours[b].After(now)
			switch {
			case silent == 0 && !believed:
				changes = append(changes, change{v, cluster.MemberEvent{Member: m, Alive: true}})
			case silent >= g.delay || believed:
				changes = append(changes, change{v, cluster.MemberEvent{Member: m}})
			}
		}
	}
	g.mu.Unlock()
	for _, c := range changes {
		c.of.apply(c.event)
	}
}

// view is one node's knowledge. It implements cluster.Members.
type view struct {
	mu       sync.Mutex
	self     cluster.Member
	alive    map[uint64]cluster.Member
	dead     map[mvcc.Worker]bool
	watchers map[int]func(cluster.MemberEvent)
	next     int
}

var _ cluster.Members = (*view)(nil)

// apply applies an event, and passes it to the watchers if it changes the view.
func (v *view) apply(e cluster.MemberEvent) {
	v.mu.Lock()
	id, w := e.Member.NodeID, workerOf(e.Member)
	before, known := v.alive[id]
	if e.Alive == known && (!known || before == e.Member) {
		v.mu.Unlock()
		return
	}
	if known && before.Incarnation != e.Member.Incarnation {
		v.dead[workerOf(before)] = true
	}
	if e.Alive {
		v.alive[id] = e.Member
		delete(v.dead, w)
	} else {
		delete(v.alive, id)
		v.dead[workerOf(before)] = true
		e.Member = before
	}
	var fns []func(cluster.MemberEvent)
	for i := range v.next {
		if fn := v.watchers[i]; fn != nil {
			fns = append(fns, fn)
		}
	}
	v.mu.Unlock()
	for _, fn := range fns {
		fn(e)
	}
}

// Alive implements cluster.Members.
func (v *view) Alive() []cluster.Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]cluster.Member, 0, len(v.alive))
	for _, m := range v.alive {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b cluster.Member) int {
		if a.NodeID < b.NodeID {
			return -1
		}
		return 1
	})
	return out
}

// Member implements cluster.Members.
func (v *view) Member(id uint64) (cluster.Member, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m, ok := v.alive[id]
	return m, ok
}

// Dead implements cluster.Members.
func (v *view) Dead(w mvcc.Worker) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.dead[w]
}

// Watch implements cluster.Members.
func (v *view) Watch(fn func(cluster.MemberEvent)) (cancel func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := v.next
	v.next++
	v.watchers[id] = fn
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.watchers, id)
	}
}
