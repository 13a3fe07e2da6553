package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/wire"
)

// weather is what the network does to batches that it carries at all.
type weather struct {
	Drop, Double float64 // the share of batches; Double is at least lateCopies
	// the most; each takes a random part of it, so that batches overtake one another
	Delay time.Duration
}

// fair is the weather of a healthy network.
var fair = weather{Delay: 2 * time.Millisecond}

// Of some batches, and of some operations of clients, a second copy arrives after the first, in
// any weather.
const (
	lateCopies       = 0.01 // the least share of them
	minLate, maxLate = 20 * time.Millisecond, 2 * time.Second
)

// double is the share of what arrives twice.
func (w weather) double() float64 { return max(w.Double, lateCopies) }

func (w weather) String() string {
	return fmt.Sprintf("drop %.0f%%, double %.0f%%, delay up to %v", 100*w.Drop, 100*w.Double,
		w.Delay)
}

// network is the network between nodes, which are named by their index.
type network struct {
	links *memlink.Network
	fair  weather // of this network while it is healthy

	mu      sync.Mutex
	rng     *rand.Rand
	copies  *rand.Rand // of how late second copies are
	weather weather
	index   map[uint64]int  // of nodes, by id
	down    map[int]bool    // nodes without a process
	cut     map[[2]int]bool // from, to
	// nodes that neither send nor receive until then, and lose nothing
	stalled map[int]time.Time
	frozen  map[int]time.Time // nodes whose Raft clock stands still until then
	mute    map[int]bool      // nodes that no batch with Raft messages reaches or leaves
	// when the latest batch of each direction arrives: in fair weather none overtakes it
	last map[[2]uint64]time.Time
	// since when two nodes, the lower first, cannot talk to each other both ways
	since  map[[2]int]time.Time
	late   map[int]time.Duration // how much later batches without Raft messages reach a node
	wavers time.Time             // clients hesitate until then
	counts struct{ sent, lost, doubled int }
}

func newNetwork(seed uint64, delay time.Duration) *network {
	fair := fair
	if delay > 0 {
		fair.Delay = delay
	}
	n := &network{
		links: memlink.NewNetwork(), rng: rand.New(rand.NewPCG(seed, 1)), fair: fair, weather: fair,
		copies: rand.New(rand.NewPCG(seed, 6)), late: map[int]time.Duration{},
		index: map[uint64]int{}, down: map[int]bool{},
		cut: map[[2]int]bool{}, stalled: map[int]time.Time{}, last: map[[2]uint64]time.Time{},
		frozen: map[int]time.Time{}, mute: map[int]bool{}, since: map[[2]int]time.Time{},
	}
	n.links.Filter = n.carry
	return n
}

// link connects a node.
func (n *network) link(id uint64, index int) peer.Link {
	n.mu.Lock()
	n.index[id] = index
	n.mu.Unlock()
	return n.links.Link(id)
}

// carry decides about a batch: it is memlink's Filter.
func (n *network) carry(from, to uint64, batch *wire.PeerBatch) (copies []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b := n.index[from], n.index[to]
	n.counts.sent++
	mute := len(batch.GetRaft()) > 0 && (n.mute[a] || n.mute[b])
	if n.down[a] || n.down[b] || n.cut[[2]int{a, b}] || mute || n.rng.Float64() < n.weather.Drop {
		n.counts.lost++
		return nil
	}
	twice := n.rng.Float64() < n.weather.double()
	after := n.arrival(from, to, a, b, batch)
	if twice {
		n.counts.doubled++
		return []time.Duration{after, after + between(n.copies, minLate, maxLate)}
	}
	return []time.Duration{after}
}

// arrival returns after how long a batch between nodes of these indices arrives.
func (n *network) arrival(from, to uint64, a, b int, batch *wire.PeerBatch) time.Duration {
	now := time.Now()
	arrives := now.Add(1 + time.Duration(n.rng.Int64N(int64(n.weather.Delay))))
	for _, x := range []int{a, b} {
		if until := n.stalled[x]; until.After(arrives) {
			arrives = until.Add(time.Duration(n.rng.Int64N(int64(n.weather.Delay))))
		}
	}
	way := [2]uint64{from, to}
	late := n.late[b]
	if len(batch.GetRaft()) > 0 {
		late = 0
	}
	if late > 0 {
		return arrives.Sub(now) + late
	}
	if n.weather == n.fair { // a connection keeps the order
		if last := n.last[way]; !arrives.After(last) {
			arrives = last.Add(time.Microsecond)
		}
	}
	if arrives.After(n.last[way]) {
		n.last[way] = arrives
	}
	return arrives.Sub(now)
}

// set changes the network under its lock.
func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// heal undoes all but the deaths of nodes.
func (n *network) heal() {
	n.set(func(n *network) {
		clear(n.cut)
		clear(n.stalled)
		clear(n.frozen)
		clear(n.mute)
		clear(n.late)
		n.weather, n.wavers = n.fair, time.Time{}
	})
}

// silent is for how long the two have not been able to talk to each other.
func (n *network) silent(a, b int) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	apart := n.down[a] || n.down[b] || n.cut[[2]int{a, b}] || n.cut[[2]int{b, a}] ||
		n.stalled[a].After(now) || n.stalled[b].After(now)
	pair := [2]int{min(a, b), max(a, b)}
	since, known := n.since[pair]
	switch {
	case !apart:
		delete(n.since, pair)
		return 0
	case !known:
		n.since[pair] = now
		return 0
	}
	return now.Sub(since)
}

// awaken waits until the node is no longer stalled, or ctx ends.
func (n *network) awaken(ctx context.Context, index int) {
	n.mu.Lock()
	left := time.Until(n.stalled[index])
	n.mu.Unlock()
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// isFrozen reports whether the node's clock stands still.
func (n *network) isFrozen(index int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	return n.frozen[index].After(now) || n.stalled[index].After(now)
}
