package tablet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
)

// A node's clock for its replicas, and its view of other nodes' liveness. The ticker's
// goroutine and the callers of its methods share the maps under mu, and never hold it while
// they send a message. A replica reports at the end of each turn whether it needs ticks
// (keep), and gets at most one at a time.

// DefaultTick is the interval at which awake replicas are ticked. With it an election begins
// 0.5 to 1 s after the leader's last message, or later where a promise to the leader's node
// (liveness.Duration) forbids it, and heartbeats are sent ten times a second.
const DefaultTick = 50 * time.Millisecond

// Ticker is the single clock of all replicas on a node. Quiescent replicas cost it nothing,
// and it stops while all of them are quiescent. It also records which nodes are believed
// dead, and notifies the replicas of changes. It is safe for concurrent use and has one
// goroutine, which Close joins.
type Ticker struct {
	system   *actor.ActorSystem
	stop     chan struct{}
	roused   actorkit.Wakeup // a replica has woken
	done     sync.WaitGroup
	ticks    atomic.Uint64
	stopped  atomic.Pointer[func() bool]
	interval time.Duration

	mu      sync.Mutex
	all     map[uint64]*tickState // by tablet
	awake   map[uint64]*tickState
	down    map[uint64]bool // nodes
	boosted map[uint64]bool // tablets whose replica here campaigns as soon as it starts
}

// tickState is a node ticker's state of a replica.
type tickState struct {
	pid   *actor.PID
	awake bool        // as last reported; only the replica uses it
	due   atomic.Bool // a tick is in the mailbox: a slow actor gets no second one
	// status is the status that the quiescent replica has published, until it receives a message
	// other than a status request; nil: none. See Ticker.LastStatus.
	status atomic.Pointer[pb.StatusResponse]
}

// withdrawStatus removes the status that a quiescent replica has published, since the message
// may change it. A status request changes nothing.
func (b *tickState) withdrawStatus(message any) {
	if call, ok := message.(*Call); ok && call.Req.GetStatus() != nil {
		return
	}
	if b != nil && b.status.Load() != nil {
		b.status.Store(nil)
	}
}

// tick is the message that one interval has passed.
type tick struct{}

// nodeChanged reports a change in the believed liveness of another node.
type nodeChanged struct {
	node uint64
	down bool
}

// NewTicker starts a ticker. An interval of 0 means DefaultTick.
func NewTicker(system *actor.ActorSystem, interval time.Duration) *Ticker {
	k := &Ticker{
		system: system, stop: make(chan struct{}), roused: actorkit.NewWakeup(),
		interval: actorkit.Positive(interval, DefaultTick),
		all:      map[uint64]*tickState{}, awake: map[uint64]*tickState{}, down: map[uint64]bool{},
		boosted: map[uint64]bool{},
	}
	k.done.Go(k.run)
	return k
}

// Close stops the ticker and joins its goroutine.
func (k *Ticker) Close() {
	close(k.stop)
	k.done.Wait()
}

// run ticks while any replica is awake, and otherwise waits until one is.
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
		t.Stop() // ticking without effect would be a large part of an idle node's CPU time
		select {
		case <-k.stop:
			return
		case <-k.roused:
			t.Reset(k.interval)
		}
	}
}

// StopWhile stops the clock while stopped returns true, for tests of what must not depend on
// it.
func (k *Ticker) StopWhile(stopped func() bool) { k.stopped.Store(&stopped) }

// tick sends one tick to each replica that is awake and has handled the previous one. It
// reports whether any is awake.
func (k *Ticker) tick() bool {
	if stopped := k.stopped.Load(); stopped != nil && (*stopped)() {
		return true
	}
	k.mu.Lock()
	awake := len(k.awake) > 0
	if !awake {
		select {
		case <-k.roused: // the wake-up of a replica that has quiesced since
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

// Stats returns the number of ticks sent so far, and the number of awake replicas.
func (k *Ticker) Stats() (ticks uint64, awake int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ticks.Load(), len(k.awake)
}

// LastStatus returns the current status of a quiescent replica, or nil if the replica must be
// asked for it. The caller must not change it.
func (k *Ticker) LastStatus(tablet uint64) *pb.StatusResponse {
	k.mu.Lock()
	b := k.all[tablet]
	k.mu.Unlock()
	if b == nil {
		return nil
	}
	return b.status.Load()
}

// Suspect reports that the node is believed dead: the replicas here whose leader is on it wake up
// and elect another leader, and no leader waits for replicas on it before it quiesces. A wrong
// suspicion costs an election.
func (k *Ticker) Suspect(node uint64) { k.change(node, true) }

// Alive withdraws a suspicion.
func (k *Ticker) Alive(node uint64) { k.change(node, false) }

// change records the believed liveness of the node and notifies all replicas of a change.
func (k *Ticker) change(node uint64, down bool) {
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
		k.system.Root.Send(pid, &nodeChanged{node, down})
	}
}

func (k *Ticker) isDown(node uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.down[node]
}

// boost makes the tablet's replica here campaign as soon as it is attached.
func (k *Ticker) boost(tablet uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.boosted[tablet] = true
}

// attach adds a starting replica. boost reports whether it must campaign immediately. A nil
// Ticker returns nil.
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

// detach removes a stopped replica, unless another replica of the tablet has started since.
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

// keep registers the replica for ticks while it is awake. The replica calls it after each turn;
// without a change it takes no lock.
func (k *Ticker) keep(tablet uint64, b *tickState, awake bool) {
	if b.awake == awake {
		return
	}
	b.awake = awake
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case awake && k.all[tablet] == b:
		k.awake[tablet] = b
		k.roused.Wake() // starts the clock if it is stopped
	case !awake && k.awake[tablet] == b:
		delete(k.awake, tablet)
	}
}
