package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/wire"
)

// weather is the treatment of batches that are not cut off.
type weather struct {
	Drop, Double float64 // shares of the batches; Double is at least lateCopies
	// maximum; each batch is delayed by a random part of it, so that batches are reordered, except
	// in fair weather
	Delay time.Duration
}

// fair is the weather of a healthy network.
var fair = weather{Delay: 2 * time.Millisecond}

// Duplicates of batches and of clients' operations, in any weather.
const (
	lateCopies       = 0.01 // minimum share
	minLate, maxLate = 20 * time.Millisecond, 2 * time.Second
)

// double returns the share of duplicated batches.
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
	copies  *rand.Rand // for the delays of duplicates
	weather weather
	index   map[uint64]int  // of nodes, by id
	down    map[int]bool    // nodes without a process
	cut     map[[2]int]bool // from, to
	// the times until which nodes neither send nor receive, but lose nothing
	stalled map[int]time.Time
	frozen  map[int]time.Time // the times until which nodes' Raft clocks are stopped
	mute    map[int]bool      // nodes that neither send nor receive batches with Raft messages or promises
	// arrival of the latest batch in each direction: in fair weather none is reordered
	last map[[2]uint64]time.Time
	// by pair, the lower first: the time since which two nodes cannot both send and receive
	since  map[[2]int]time.Time
	late   map[int]time.Duration // additional delay of batches without Raft messages to a node
	wavers time.Time             // the time until which clients delay their commits
	tally  func(*wire.PeerBatch) // called for each batch that is sent; nil: none
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

// carry decides the fate of a batch. It is memlink's Filter.
func (n *network) carry(from, to uint64, batch *wire.PeerBatch) (copies []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b := n.index[from], n.index[to]
	n.counts.sent++
	if n.tally != nil {
		n.tally(batch)
	}
	mute := (len(batch.GetRaft()) > 0 || supports(batch)) && (n.mute[a] || n.mute[b])
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

// supports reports whether the batch has promises between nodes, or requests for them.
func supports(batch *wire.PeerBatch) bool {
	return slices.ContainsFunc(batch.GetRequests(), func(r *wire.PeerRequest) bool { return r.GetSupport() != nil }) ||
		slices.ContainsFunc(batch.GetResponses(), func(r *wire.PeerResponse) bool { return r.GetSupport() != nil })
}

// arrival returns the delay of a batch between the nodes with these indices.
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
	if n.weather == n.fair { // keep the order, as a connection does
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

// heal ends all faults except the deaths of nodes.
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

// silent returns the time for which the two nodes have not been able to communicate.
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

// isFrozen reports whether the node's Raft clock is stopped.
func (n *network) isFrozen(index int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	return n.frozen[index].After(now) || n.stalled[index].After(now)
}
