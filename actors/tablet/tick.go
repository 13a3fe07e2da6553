package tablet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file has a node's clock for its replicas, and what the node believes of other
// nodes. The ticker's goroutine and the callers of its methods share the maps under mu,
// and never hold it while they send a message. A replica tells it at the end of each turn
// whether it wants ticks (keep), and gets at most one at a time.

// DefaultTick is how often replicas that are awake are ticked. With it a leader is missed
// after half a second to a second, and sends heartbeats ten times a second.
const DefaultTick = 50 * time.Millisecond

// Ticker is the one clock of all replicas on a node. Replicas at rest cost it nothing,
// and it stands still while all of them rest. It also knows which nodes are believed
// dead, and tells the replicas when that changes. It is safe for concurrent use and has
// one goroutine, which Close joins.
type Ticker struct {
	system   *actor.ActorSystem
	stop     chan struct{}
	roused   chan struct{} // capacity 1: a replica is awake, and none was
	done     sync.WaitGroup
	ticks    atomic.Uint64
	stopped  atomic.Pointer[func() bool]
	interval time.Duration

	mu      sync.Mutex
	all     map[uint64]*tickState // by tablet
	awake   map[uint64]*tickState
	down    map[uint64]bool // nodes
	boosted map[uint64]bool // tablets whose replica here is to campaign as soon as it starts
}

// tickState is what a node's ticker keeps of a replica.
type tickState struct {
	pid   *actor.PID
	awake bool        // what the replica last said; its own
	due   atomic.Bool // a tick is in the mailbox: a slow actor gets no second one
	// status is what the replica last said about itself, if it rests and nothing has
	// happened to it since: see Ticker.LastStatus.
	status atomic.Pointer[pb.StatusResponse]
}

// withdrawStatus removes the status that a resting replica has left for the node, since the
// message may change it. A request for the status changes nothing.
func (b *tickState) withdrawStatus(message any) {
	if call, ok := message.(*Call); ok && call.Req.GetStatus() != nil {
		return
	}
	if b != nil && b.status.Load() != nil {
		b.status.Store(nil)
	}
}

// tick is the passing of one interval.
type tick struct{}

// nodeDown and nodeUp say what the node has come to believe of another.
type (
	nodeDown struct{ node uint64 }
	nodeUp   struct{ node uint64 }
)

// NewTicker starts a ticker. An interval of 0 means DefaultTick.
func NewTicker(system *actor.ActorSystem, interval time.Duration) *Ticker {
	if interval <= 0 {
		interval = DefaultTick
	}
	k := &Ticker{
		system: system, stop: make(chan struct{}), roused: make(chan struct{}, 1),
		interval: interval,
		all:      map[uint64]*tickState{}, awake: map[uint64]*tickState{}, down: map[uint64]bool{},
		boosted: map[uint64]bool{},
	}
	k.done.Go(k.run)
	return k
}

// Close ends the ticker and joins its goroutine.
func (k *Ticker) Close() {
	close(k.stop)
	k.done.Wait()
}

// run ticks while any replica is awake, and else waits until one is.
func (k *Ticker) run() {
	t := time.NewTicker(k.interval)
	defer t.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-t.C:
		}
		if k.tick() {
			continue
		}
		t.Stop() // twenty times a second for nothing is a good part of what an idle node does
		select {
		case <-k.stop:
			return
		case <-k.roused:
			t.Reset(k.interval)
		}
	}
}

// StopWhile makes the clock stand still while stopped returns true. It is for tests of
// what must not depend on it.
func (k *Ticker) StopWhile(stopped func() bool) { k.stopped.Store(&stopped) }

// tick sends one tick to each replica that is awake and has handled the last one. It
// reports whether any is awake.
func (k *Ticker) tick() bool {
	if stopped := k.stopped.Load(); stopped != nil && (*stopped)() {
		return true
	}
	k.mu.Lock()
	awake := len(k.awake) > 0
	if !awake {
		select {
		case <-k.roused: // of one that has gone to sleep again
		default:
		}
	}
	due := make([]*actor.PID, 0, len(k.awake))
	for _, b := range k.awake {
		if b.due.CompareAndSwap(false, true) {
			due = append(due, b.pid)
		}
	}
	k.mu.Unlock()
	k.ticks.Add(uint64(len(due)))
	for _, pid := range due {
		k.system.Root.Send(pid, &tick{})
	}
	return awake
}

// Stats returns how many ticks replicas got so far, and how many replicas are awake.
func (k *Ticker) Stats() (ticks uint64, awake int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ticks.Load(), len(k.awake)
}

// LastStatus returns the status of a replica at rest, as it last answered and as it still
// is, or nil if the replica must be asked. The caller must not change it.
func (k *Ticker) LastStatus(tablet uint64) *pb.StatusResponse {
	k.mu.Lock()
	b := k.all[tablet]
	k.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.status.Load()
}

// Suspect says that the node is believed dead: replicas that it led wake up and elect
// another leader, and none waits for its replicas before coming to rest. A wrong
// suspicion costs an election.
func (k *Ticker) Suspect(node uint64) { k.change(node, true, &nodeDown{node}) }

// Alive withdraws what Suspect has said.
func (k *Ticker) Alive(node uint64) { k.change(node, false, &nodeUp{node}) }

// change records what is believed of the node and tells all replicas, if that is new.
func (k *Ticker) change(node uint64, down bool, message any) {
	k.mu.Lock()
	if k.down[node] == down {
		k.mu.Unlock()
		return
	}
	if down {
		k.down[node] = true
	} else {
		delete(k.down, node)
	}
	pids := make([]*actor.PID, 0, len(k.all))
	for _, b := range k.all {
		pids = append(pids, b.pid)
	}
	k.mu.Unlock()
	for _, pid := range pids {
		k.system.Root.Send(pid, message)
	}
}

func (k *Ticker) isDown(node uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.down[node]
}

// boost lets the tablet's replica here campaign as soon as it is attached.
func (k *Ticker) boost(tablet uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.boosted[tablet] = true
}

// attach adds a replica that starts. boost reports whether it is to campaign at once. A nil
// Ticker keeps nothing for it.
func (k *Ticker) attach(tablet uint64, pid *actor.PID) (b *tickState, boost bool) {
	if k == nil {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	b = &tickState{pid: pid}
	k.all[tablet] = b
	boost = k.boosted[tablet]
	delete(k.boosted, tablet)
	return b, boost
}

// detach removes a replica that has stopped, unless another replica of the tablet has
// started meanwhile.
func (k *Ticker) detach(tablet uint64, b *tickState) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[tablet] == b {
		delete(k.all, tablet)
		delete(k.awake, tablet)
	}
}

// keep has the replica ticked while it is awake. The replica calls it after each turn;
// without a change it takes no lock.
func (k *Ticker) keep(tablet uint64, b *tickState, awake bool) {
	switch {
	case b.awake == awake:
		return
	case awake:
		k.addAwake(tablet, b)
	default:
		k.rest(tablet, b)
	}
	b.awake = awake
}

// addAwake has the replica ticked from now on, and starts a clock that stands still. rest
// ends that.
func (k *Ticker) addAwake(tablet uint64, b *tickState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[tablet] != b {
		return
	}
	k.awake[tablet] = b
	select {
	case k.roused <- struct{}{}:
	default:
	}
}

func (k *Ticker) rest(tablet uint64, b *tickState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.awake[tablet] == b {
		delete(k.awake, tablet)
	}
}
