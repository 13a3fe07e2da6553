package gossip

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Table of members. memberlist's callbacks write it, Set writes this node's own entry, and
// any goroutine reads it, under one mutex that is never held during a call to memberlist or
// to a watcher. Events are queued here, in order and bounded, for the goroutine of deliver.

// Bounds of the table. A cluster has at most 1,024 nodes; the other places are for removed nodes
// and for new ones.
const (
	maxNodes  = 4096
	maxDead   = 16384
	maxEvents = 4096
)

// table holds the known members. It never calls memberlist, so that callbacks may use it.
type table struct {
	mu     sync.Mutex
	alive  map[uint64]cluster.Member // by node: its newest incarnation
	newest map[uint64]uint64         // by node: the highest incarnation ever reported
	dead   map[mvcc.Worker]bool      // the last maxDead incarnations reported dead
	order  []mvcc.Worker             // keys of dead, oldest first

	events   []cluster.MemberEvent // not yet delivered to the watchers
	wake     chan struct{}         // one token while events are queued
	lost     chan struct{}         // one token after a member's death, for rejoin
	watchers map[int]func(cluster.MemberEvent)
	nextID   int
}

func newTable(self cluster.Member) *table {
	return &table{
		alive:    map[uint64]cluster.Member{self.NodeID: self},
		newest:   map[uint64]uint64{self.NodeID: self.Incarnation},
		dead:     map[mvcc.Worker]bool{},
		wake:     make(chan struct{}, 1),
		lost:     make(chan struct{}, 1),
		watchers: map[int]func(cluster.MemberEvent){},
	}
}

// workerOf returns the incarnation of a member.
func workerOf(m cluster.Member) mvcc.Worker {
	return mvcc.Worker{Node: m.NodeID, Incarnation: m.Incarnation}
}

// newestOf returns the highest incarnation of the node ever reported, and whether the node
// is known or the table has room for it.
func (t *table) newestOf(node uint64) (incarnation uint64, room bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	incarnation, known := t.newest[node]
	return incarnation, known || len(t.newest) < maxNodes
}

// up stores a living member. It returns true if the member was not alive before.
func (t *table) up(m cluster.Member) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A late report of an earlier incarnation.
	if m.Incarnation < t.newest[m.NodeID] {
		return false
	}
	old, was := t.alive[m.NodeID]
	// A later incarnation ends the earlier one at once, before memberlist notices.
	if was && old.Incarnation < m.Incarnation {
		t.markDead(old)
		was = false
	}
	t.newest[m.NodeID] = m.Incarnation
	t.alive[m.NodeID] = m
	delete(t.dead, workerOf(m)) // a member that was paused or partitioned has returned
	if !was || old != m {
		t.queue(cluster.MemberEvent{Member: m, Alive: true})
	}
	return !was
}

// down records a member's end. It may be called after up was called for the next incarnation.
func (t *table) down(m cluster.Member) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have, ok := t.alive[m.NodeID]; ok && have.Incarnation == m.Incarnation {
		delete(t.alive, m.NodeID)
		t.markDead(have)
		return
	}
	t.addDead(workerOf(m))
}

// markDead records an incarnation's death and queues the event. The caller holds mu.
func (t *table) markDead(m cluster.Member) {
	t.addDead(workerOf(m))
	t.queue(cluster.MemberEvent{Member: m})
	select {
	case t.lost <- struct{}{}:
	default:
	}
}

// addDead adds an incarnation to the dead and removes the oldest beyond maxDead. The caller
// holds mu.
func (t *table) addDead(w mvcc.Worker) {
	if t.dead[w] {
		return
	}
	t.dead[w] = true
	if t.order = append(t.order, w); len(t.order) > maxDead {
		delete(t.dead, t.order[0])
		t.order = t.order[1:]
	}
}

// isDead reports whether the incarnation is known to have ended.
func (t *table) isDead(w mvcc.Worker) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.Node != 0 && (w.Incarnation < t.newest[w.Node] || t.dead[w])
}

// queue adds an event for the watchers, or replaces the last one if that is of the same
// living member. The caller holds mu.
func (t *table) queue(e cluster.MemberEvent) {
	last := len(t.events) - 1
	if last >= 0 && e.Alive && t.events[last].Alive &&
		workerOf(t.events[last].Member) == workerOf(e.Member) {
		t.events[last] = e
		return
	}
	if t.events = append(t.events, e); len(t.events) > maxEvents {
		t.events = t.events[1:] // a watcher hangs: drop the oldest event; it can still call Alive
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// deliver passes each queued event to the watchers, in the order in which the watchers were added.
// Only the goroutine of Gossip.deliver calls it, so events keep their order.
func (t *table) deliver() {
	t.mu.Lock()
	events, watchers := t.events, make([]func(cluster.MemberEvent), 0, len(t.watchers))
	t.events = nil
	for _, id := range slices.Sorted(maps.Keys(t.watchers)) {
		watchers = append(watchers, t.watchers[id])
	}
	t.mu.Unlock()
	for _, e := range events {
		for _, fn := range watchers {
			fn(e)
		}
	}
}

// watch adds a watcher.
func (t *table) watch(fn func(cluster.MemberEvent)) (cancel func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.nextID
	t.nextID++
	t.watchers[id] = fn
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, id)
	}
}

// member returns the living incarnation of a node.
func (t *table) member(node uint64) (cluster.Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.alive[node]
	return m, ok
}

// members returns the living members by node id.
func (t *table) members() []cluster.Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]cluster.Member, 0, len(t.alive))
	for _, m := range t.alive {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b cluster.Member) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return out
}
