package liveness

import (
	"sync"
	"sync/atomic"
	"time"
)

// This file has the promises that this node gives and those that it has received, without I/O. Its
// methods are called on any goroutine.

const (
	// Duration is how long a promise lasts on the clock of the node that gives it. A later build
	// may not promise more than the time for which this one waits after a start.
	Duration = 800 * time.Millisecond
	// Period is the time between two requests to a node.
	Period = Duration / 4
	// MaxDrift is the assumed maximum of the difference between the speeds of two nodes' clocks.
	MaxDrift = 0.1
	// wantedFor is how long a node is asked for support after a lease last needed it.
	wantedFor = 30 * time.Second
	// maxNodes limits the nodes with promises; support is not given to more.
	maxNodes = 4096
)

// Config configures a Node.
type Config struct {
	// Clock returns the time since a fixed moment; see Boottime.
	Clock func() time.Duration
	// Incarnation identifies this process to the others.
	Incarnation uint64
	// Epoch is the first epoch of this process: a random number that no other process uses.
	Epoch uint64
	// Promised reports that an earlier process of this node may have given promises.
	Promised bool
	// MayPromise reports whether every process that can run on this node from now on keeps the
	// promises of an earlier one (version.Leases).
	MayPromise func() bool
	// MayAsk reports whether leases are in use. Nil means never: this node gives promises only.
	MayAsk func() bool
}

// Node has the promises of one process.
type Node struct {
	cfg       Config
	waitUntil time.Duration // see Waiting
	waited    atomic.Bool
	missed    atomic.Uint64
	wake      chan struct{} // capacity 1: there is something to do for Run

	mu        sync.Mutex
	durable   bool // it is durable that this node may have given promises
	asked     bool // a promise was requested while durable was false, and Durable has not seen it
	given     map[uint64]*given
	received  map[uint64]*received
	fortified map[uint64]fortified
}

// given is this node's support of another one.
type given struct {
	epoch, incarnation uint64
	until              time.Duration // end of the last promise, on this node's clock
	refused            bool          // no further promises of this epoch
}

// received is another node's support of this one.
type received struct {
	epoch  uint64
	until  time.Duration // end of the promise, on this node's clock; 0: none yet
	wanted time.Duration // when a lease last needed it; 0: the node is not asked for it
	missed bool          // the promise's end has been counted, or no lease needs it
	speed  speed
}

// fortified is an acknowledgment of a leader, see Fortify.
type fortified struct{ node, epoch uint64 }

// New returns the promises of a process that has just started.
func New(cfg Config) *Node {
	n := &Node{
		cfg: cfg, durable: cfg.Promised, wake: make(chan struct{}, 1),
		given: map[uint64]*given{}, received: map[uint64]*received{}, fortified: map[uint64]fortified{},
	}
	if cfg.Promised {
		n.waitUntil = cfg.Clock() + Duration
	}
	n.waited.Store(!cfg.Promised)
	return n
}

// Now returns the time on the node's clock.
func (n *Node) Now() time.Duration { return n.cfg.Clock() }

// Waiting reports whether promises that an earlier process of this node gave may still hold. This
// process does not know them: until they have run out, its replicas take part in no election.
func (n *Node) Waiting() bool {
	if n.waited.Load() {
		return false
	}
	if n.cfg.Clock() < n.waitUntil {
		return true
	}
	n.waited.Store(true)
	return false
}

// Promise answers another node's request for support. An epoch of 0 means no promise.
func (n *Node) Promise(node, incarnation uint64) (epoch uint64, lasts time.Duration) {
	if !n.cfg.MayPromise() {
		return 0, 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.durable {
		n.asked = true
		n.rouse() // Run makes it durable
		return 0, 0
	}
	now := n.cfg.Clock()
	g := n.given[node]
	switch {
	case g == nil && len(n.given) >= maxNodes:
		return 0, 0
	case g == nil:
		g = &given{epoch: n.cfg.Epoch, incarnation: incarnation}
		n.given[node] = g
	case incarnation < g.incarnation:
		return 0, 0
	case g.refused || incarnation > g.incarnation:
		// The promises given so far must run out first.
		if now < g.until {
			return 0, 0
		}
		*g = given{epoch: g.epoch + 1, incarnation: incarnation}
	}
	g.until = now + Duration
	return g.epoch, Duration
}

// Supported returns the epoch under which this node supports the given one now, 0 if it does not.
func (n *Node) Supported(node uint64) (epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.given[node]; g != nil && !g.refused && n.cfg.Clock() < g.until {
		return g.epoch
	}
	return 0
}

// Withdraw withdraws the node's support under the epoch, unless a promise still holds. It reports
// whether the support is withdrawn, now or earlier.
func (n *Node) Withdraw(node, epoch uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.given[node]
	switch {
	case g == nil || g.epoch != epoch:
		return true
	case n.cfg.Clock() < g.until:
		return false
	}
	*g = given{epoch: g.epoch + 1, incarnation: g.incarnation}
	return true
}

// Refuse ends the promises under the epoch: the last one given still holds, and no other follows.
// The next support of the node has another epoch.
func (n *Node) Refuse(node, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.given[node]; g != nil && g.epoch == epoch {
		g.refused = true
	}
}

// Fortify remembers the node of the leader that the tablet's replica here acknowledged last, and
// the epoch sent with that acknowledgment. Both outlive the replica's Group. An epoch of 0 forgets.
func (n *Node) Fortify(tablet, node, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if epoch == 0 {
		delete(n.fortified, tablet)
		return
	}
	n.fortified[tablet] = fortified{node, epoch}
}

// Fortified returns what Fortify remembers for the tablet, or zeros.
func (n *Node) Fortified(tablet uint64) (node, epoch uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.fortified[tablet]
	return f.node, f.epoch
}

// SupportUntil returns the time on this node's clock up to which the other node has promised its
// support under the epoch. It returns 0 without such a promise, or if the speeds of the two nodes'
// clocks differ by more than MaxDrift. While leases are in use, it makes Run ask the node for
// support.
func (n *Node) SupportUntil(node, epoch uint64) time.Duration {
	if n.cfg.MayAsk == nil || !n.cfg.MayAsk() {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.received[node]
	switch {
	case r == nil && len(n.received) >= maxNodes:
		return 0
	case r == nil:
		r = &received{}
		n.received[node] = r
	}
	if r.wanted == 0 {
		n.rouse()
	}
	r.wanted = n.cfg.Clock()
	// A promise of a node whose clock certainly runs too fast may end early. A clock that is too
	// slow counts alike.
	if r.epoch != epoch || r.speed.known && r.speed.last.Beyond(MaxDrift) {
		return 0
	}
	return r.until
}

// Asked returns the nodes to ask for support now, and the time to pass to Answered. It counts the
// promises that have run out while a lease needed them.
func (n *Node) Asked() (nodes []uint64, sent time.Duration) {
	if n.cfg.MayAsk == nil {
		return nil, 0
	}
	asks := n.cfg.MayAsk()
	n.mu.Lock()
	defer n.mu.Unlock()
	sent = n.cfg.Clock()
	for node, r := range n.received {
		if r.wanted == 0 || sent-r.wanted > wantedFor || !asks {
			r.wanted, r.missed = 0, true // the promise may run out without being counted
			continue
		}
		if r.until != 0 && sent >= r.until && !r.missed {
			r.missed = true
			n.missed.Add(1)
		}
		nodes = append(nodes, node)
	}
	return nodes, sent
}

// Answered records another node's promise: sent is the time at which the request for it was sent.
func (n *Node) Answered(node uint64, sent time.Duration, epoch uint64, lasts time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.received[node]
	if r == nil || epoch == 0 {
		return
	}
	lasts = min(lasts, Duration)
	until := sent + time.Duration(float64(lasts)*(1-MaxDrift))
	// A later promise does not shorten an earlier one: keep the one that lasts longest.
	if until > r.until {
		r.epoch, r.until, r.missed = epoch, until, false
	}
}

// Missed returns the number of promises that have run out while they were needed.
func (n *Node) Missed() uint64 { return n.missed.Load() }

// rouse wakes Run.
func (n *Node) rouse() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}
