package group

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/liveness"
	"github.com/percolator-go/percolator/internal/wire"
)

// leaseNet runs whole groups in virtual time under faults, with clocks of different speeds and real
// promises between their nodes, and checks the one thing that leases are for: while a leader holds
// its lease, no replica leads in a later term, and none can acknowledge anything.
type leaseNet struct {
	*world
	rng    *rand.Rand
	now    time.Duration // true time
	events events
	nodes  map[uint64]*leaseNode
	held   int // checks at which a lease was held
	terms  uint64
	err    error
}

// leaseNode is a node of a leaseNet. Its clock runs on while it is paused, as that of a suspended
// machine.
type leaseNode struct {
	id          uint64
	speed       float64
	promises    *liveness.Node // nil: crashed
	durable     bool           // what a crash leaves of the promises
	incarnation uint64
	paused      bool
	late        []func() // what has arrived during the pause
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	n  int // order among those of one time
	do func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].n, e[j].n)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

const (
	leaseSeeds = 40
	leaseTick  = 50 * time.Millisecond
	leaseNodes = 4 // of which three have a voter at first
)

func newLeaseNet(seed uint64) *leaseNet {
	l := &leaseNet{
		world: &world{
			cut: map[uint64]bool{}, down: map[uint64]bool{}, full: map[uint64]bool{},
			leases: map[uint64]Leases{}, away: map[uint64]bool{},
		},
		rng: rand.New(rand.NewPCG(seed, 1)), nodes: map[uint64]*leaseNode{},
	}
	d := &pb.TabletDescriptor{TabletId: firstTablet, Epoch: 1, NextReplicaId: leaseNodes + 1}
	for id := uint64(1); id <= leaseNodes; id++ {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: id, Learner: id > 3})
	}
	for id := uint64(1); id <= leaseNodes; id++ {
		// The fastest and the slowest clock differ by nearly the bound.
		spread := 0.95 * liveness.MaxDrift
		n := &leaseNode{id: id, speed: 1 + spread*[]float64{0, -0.5, 0.5, l.rng.Float64() - 0.5}[(id+seed)%4]}
		l.nodes[id] = n
		l.boot(n)
		l.add(firstTablet, id, id, state{index: beginIndex, term: beginTerm, descriptor: d, conf: ConfState(d)})
		l.after(l.upTo(leaseTick), func() { l.tickNode(n) })
		l.after(l.upTo(liveness.Period), func() { l.ask(n) })
	}
	return l
}

func (l *leaseNet) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

func (l *leaseNet) after(d time.Duration, do func()) {
	l.terms++
	heap.Push(&l.events, event{l.now + d, int(l.terms), do})
}

// boot begins a process: a new incarnation without the promises of the last one.
func (l *leaseNet) boot(n *leaseNode) {
	n.incarnation++
	n.promises = liveness.New(liveness.Config{
		Clock:       func() time.Duration { return time.Duration(float64(l.now) * n.speed) },
		Incarnation: n.incarnation, Epoch: n.id<<32 | n.incarnation<<16, Promised: n.durable,
		MayPromise: func() bool { return true }, MayAsk: func() bool { return true },
	})
	l.leases[n.id] = n.promises
}

// deliverTo does something on a node, at once or when its pause ends; never if it has crashed.
func (l *leaseNet) deliverTo(n *leaseNode, do func()) {
	switch {
	case n.promises == nil:
	case n.paused:
		n.late = append(n.late, do)
	default:
		do()
	}
}

// transit returns how long a message is under way; lost if it does not arrive.
func (l *leaseNet) transit(from, to uint64) (d time.Duration, lost bool) {
	if l.cut[from] != l.cut[to] || l.rng.IntN(50) == 0 {
		return 0, true
	}
	if l.rng.IntN(20) == 0 {
		return l.upTo(3 * time.Second), false
	}
	return l.upTo(20 * time.Millisecond), false
}

// ask sends a node's requests for support, as Run does.
func (l *leaseNet) ask(n *leaseNode) {
	l.after(liveness.Period, func() { l.ask(n) })
	if n.promises == nil || n.paused {
		return
	}
	asking, incarnation := n.promises, n.incarnation
	targets, sent := asking.Asked()
	for _, to := range targets {
		there := l.nodes[to]
		way, lost := l.transit(n.id, to)
		if lost {
			continue
		}
		l.after(way, func() {
			l.deliverTo(there, func() {
				epoch, lasts := there.promises.Promise(n.id, incarnation)
				_ = there.promises.Durable(func() error { there.durable = true; return nil })
				back, lost := l.transit(to, n.id)
				if lost {
					return
				}
				l.after(back, func() {
					l.deliverTo(n, func() {
						if n.promises == asking {
							asking.Answered(to, sent, epoch, lasts)
						}
					})
				})
			})
		})
	}
}

// tickNode ticks a node's replica, and sometimes has it read and write.
func (l *leaseNet) tickNode(n *leaseNode) {
	l.after(leaseTick, func() { l.tickNode(n) })
	l.deliverTo(n, func() {
		r := l.at(firstTablet, n.id)
		if r == nil || r.group == nil {
			return
		}
		r.tick(r.group.Elected() && l.rng.IntN(3) > 0, false)
		if r.group.MayLead() {
			if l.rng.IntN(4) == 0 {
				_ = r.group.Propose([]byte("x"))
				r.group.Wake()
			}
			r.group.ReadIndex(uint64(l.rng.Int64()))
		}
		l.settle(r)
	})
}

// settle lets the replica do what it can, and sends its messages.
func (l *leaseNet) settle(r *replica) {
	for r.group != nil && (r.ready() || r.finishAppend() || r.finishApply()) {
		continue
	}
	for _, m := range l.take(func(*wire.RaftMessage) bool { return true }) {
		copies := 1
		if l.rng.IntN(20) == 0 {
			copies = 2
		}
		for range copies {
			way, lost := l.transit(m.FromNode, m.ToNode)
			if lost || l.nodes[m.ToNode] == nil {
				continue
			}
			l.after(way, func() {
				l.deliverTo(l.nodes[m.ToNode], func() {
					l.deliver(m)
					if r := l.at(firstTablet, m.ToNode); r != nil && r.group != nil {
						l.settle(r)
					}
				})
			})
		}
	}
	l.out.Reset()
}

// check checks every lease that is held now, on nodes that could answer a read now.
func (l *leaseNet) check() {
	for _, r := range l.replicas {
		if r.group == nil || l.nodes[r.node].paused {
			continue
		}
		index, ok := r.group.readLease()
		if !ok {
			continue
		}
		l.held++
		for _, other := range l.replicas {
			if other.group == nil || other == r {
				continue
			}
			if now := other.group.raft.BasicStatus(); now.RaftState == raft.StateLeader && now.GetTerm() > r.group.term {
				l.err = fmt.Errorf("LEASE-BROKEN: at %v node %d reads under its lease of term %d, and node %d leads in term %d",
					l.now, r.node, r.group.term, other.node, now.GetTerm())
			} else if now.GetCommit() > index {
				l.err = fmt.Errorf("LEASE-BROKEN: at %v node %d reads up to %d under its lease, and node %d knows %d as committed",
					l.now, r.node, index, other.node, now.GetCommit())
			}
		}
	}
}

// fault does one random thing to the cluster.
func (l *leaseNet) fault() {
	l.after(l.upTo(1500*time.Millisecond), l.fault)
	n := l.nodes[1+l.rng.Uint64N(leaseNodes)]
	if leader := l.leader(); leader != nil && l.rng.IntN(2) == 0 {
		n = l.nodes[leader.node]
	}
	r := l.at(firstTablet, n.id)
	switch l.rng.IntN(7) {
	case 0:
		l.crash(n, l.upTo(1500*time.Millisecond))
	case 1: // suspended
		if n.promises != nil && !n.paused {
			n.paused, l.away[n.id] = true, true
			l.after(l.upTo(3*time.Second), func() { l.resume(n) })
		}
	case 2:
		l.cut[n.id] = true
		l.after(l.upTo(3*time.Second), func() { delete(l.cut, n.id) })
	case 3, 4:
		if r != nil && r.group != nil && r.group.Elected() && !n.paused {
			if target := r.group.TransferTarget(0); target != 0 {
				r.group.Transfer(target)
				l.settle(r)
			}
		}
	case 5: // believed dead by the others, rightly or not
		l.down[n.id] = true
		for _, other := range l.replicas {
			if other.node != n.id && other.group != nil && !l.nodes[other.node].paused {
				other.group.NodeDown(n.id)
				l.settle(other)
			}
		}
		l.after(l.upTo(2*time.Second), func() { delete(l.down, n.id) })
	case 6:
		l.change()
	}
}

func (l *leaseNet) crash(n *leaseNode, away time.Duration) {
	r := l.at(firstTablet, n.id)
	if n.promises == nil || n.paused || r == nil {
		return
	}
	n.promises, r.group = nil, nil
	l.after(away, func() {
		l.boot(n)
		if r := l.at(firstTablet, n.id); r != nil {
			r.start(false)
			l.settle(r)
		}
	})
}

func (l *leaseNet) resume(n *leaseNode) {
	n.paused = false
	delete(l.away, n.id)
	// Reads go first: they may have waited since before the pause.
	l.check()
	late := n.late
	n.late = nil
	for _, do := range late {
		l.deliverTo(n, do)
	}
}

func (l *leaseNet) leader() *replica {
	for _, r := range l.replicas {
		if r.group != nil && r.group.MayLead() {
			return r
		}
	}
	return nil
}

// change exchanges a voter for the learner, through a joint configuration, or only adds or removes
// one vote.
func (l *leaseNet) change() {
	r := l.leader()
	if r == nil || r.change != nil || l.nodes[r.node].paused {
		return
	}
	var learner, voter uint64
	voters := 0
	for _, member := range r.state.descriptor.Replicas {
		switch {
		case member.Learner:
			learner = member.NodeId
		default:
			voters++
			if member.NodeId != r.node || l.rng.IntN(4) == 0 {
				voter = member.NodeId
			}
		}
	}
	var steps []*pb.ReplicaChange
	if learner != 0 {
		steps = append(steps, &pb.ReplicaChange{Kind: pb.ReplicaChange_KIND_PROMOTE, NodeId: learner})
	}
	if voter != 0 && voters > 2 && (learner == 0 || l.rng.IntN(2) == 0) {
		steps = append(steps, &pb.ReplicaChange{Kind: pb.ReplicaChange_KIND_DEMOTE, NodeId: voter})
	}
	if _, done, err := NextDescriptor(r.state.descriptor, steps); err != nil || done {
		return
	}
	r.change = NewChange(steps)
	r.group.Wake()
	r.proposeChange()
	l.settle(r)
}

// run runs the cluster for a time, and returns what was broken.
func (l *leaseNet) run(d time.Duration) error {
	l.after(0, l.fault)
	for l.now < d && l.err == nil {
		e := heap.Pop(&l.events).(event)
		l.now = e.at
		e.do()
		l.check()
	}
	return l.err
}

// TestLeases checks leases under crashes, pauses, partitions, transfers, false reports of death and
// changes of the voters, with clocks whose speeds differ by nearly the bound.
func TestLeases(t *testing.T) {
	held := 0
	for seed := range uint64(leaseSeeds) {
		l := newLeaseNet(seed)
		if err := l.run(30 * time.Second); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		held += l.held
	}
	t.Logf("leases were held at %d checks", held)
	if held < 1000 {
		t.Errorf("leases were held at %d checks only", held)
	}
}

// leased returns three voters of which node 1 leads in term 2 and holds a lease of node 2's promises
// alone: node 3 is cut off, and whatever it promised has run out.
func leased(t *testing.T) *leaseNet {
	t.Helper()
	l := newLeaseNet(0)
	l.events, l.rng = nil, rand.New(rand.NewPCG(0, 2))
	first := l.at(firstTablet, 1)
	first.group.campaign()
	l.stabilize(nil)
	l.promise(1, 2)
	l.promise(1, 3)
	l.now += liveness.Duration
	l.cut[3] = true
	l.promise(1, 2) // a read needs it, but it is the first
	for range 2 {
		first.group.ReadIndex(7)
		l.stabilize(nil)
		l.promise(1, 2)
	}
	if _, ok := first.group.readLease(); !ok {
		t.Fatal("node 1 has no lease")
	}
	return l
}

// promise has a node ask another one for its support, without any time on the way.
func (l *leaseNet) promise(from, to uint64) {
	asking, there := l.nodes[from], l.nodes[to]
	for range 2 { // the first promise has to become durable
		epoch, lasts := there.promises.Promise(from, asking.incarnation)
		_ = there.promises.Durable(func() error { there.durable = true; return nil })
		asking.promises.Answered(to, asking.promises.Now(), epoch, lasts)
	}
}

// elections is how often a directed test elects a leader: raft draws its timeouts at random, so that a
// broken build may happen to elect after the lease.
const elections = 20

// elect lets nodes 2 and 3 elect a leader while node 1 is cut off, and checks that node 1 reads under
// its lease no longer than until then.
func (l *leaseNet) elect(t *testing.T) {
	t.Helper()
	l.cut = map[uint64]bool{1: true, 4: true}
	for range 30 * ElectionTicks {
		for node := uint64(2); node <= 3; node++ {
			l.at(firstTablet, node).tick(true, false)
		}
		l.stabilize([]uint64{2, 3})
		l.out.Reset()
		if l.check(); l.err != nil {
			t.Fatal(l.err)
		}
		if l.at(firstTablet, 2).group.Elected() || l.at(firstTablet, 3).group.Elected() {
			return
		}
		l.now += leaseTick
	}
	t.Error("nodes 2 and 3 elect nobody")
}

// TestPromiseOutlivesCrash: a voter that restarts keeps the promises that it has forgotten.
func TestPromiseOutlivesCrash(t *testing.T) {
	for range elections {
		l := leased(t)
		l.boot(l.nodes[2])
		l.at(firstTablet, 2).start(false)
		l.elect(t)
	}
}

// TestPromiseOutlivesGroup: a replica that is opened again, in the same process, still keeps its
// node's promises, also those given since.
func TestPromiseOutlivesGroup(t *testing.T) {
	for range elections {
		l := leased(t)
		l.at(firstTablet, 2).start(false)
		for range 3 {
			l.now += liveness.Period
			l.promise(1, 2)
		}
		l.elect(t)
	}
}

// TestReportOfDeathWaits: a follower that hears that the leader's node is dead campaigns only when that
// node's promise has run out, and votes for no other that may campaign earlier.
func TestReportOfDeathWaits(t *testing.T) {
	for _, early := range []uint64{0, 3} {
		l := leased(t)
		l.down[1] = true
		for node := uint64(2); node <= 3; node++ {
			l.at(firstTablet, node).group.NodeDown(1)
		}
		if early != 0 {
			l.at(firstTablet, early).group.campaign()
		}
		l.elect(t)
	}
}

// TestRefusedPromiseStillBars: a follower whose node refuses further promises keeps the last one, also
// when it acknowledges the leader again, without an epoch.
func TestRefusedPromiseStillBars(t *testing.T) {
	for range elections {
		l := leased(t)
		l.at(firstTablet, 2).group.promise.refuse()
		must(l.at(firstTablet, 1).group.Propose([]byte("again")))
		l.at(firstTablet, 1).group.Wake()
		l.stabilize(nil)
		l.elect(t)
	}
}

// TestFormerLeaderBarsNobody: a follower of a leader that nobody has promised anything is not bound by
// the promises to a former leader's node, which that node renews for other tablets.
func TestFormerLeaderBarsNobody(t *testing.T) {
	l := leased(t)
	clear(l.cut)
	l.promise(1, 3)
	must(l.at(firstTablet, 1).group.Propose([]byte("acknowledged")))
	l.stabilize(nil)
	if !l.at(firstTablet, 3).group.promise.barred() {
		t.Fatal("node 3 has not fortified node 1")
	}
	l.at(firstTablet, 1).group.Transfer(2)
	l.stabilize(nil)
	if !l.at(firstTablet, 2).group.Elected() {
		t.Fatal("node 2 does not lead after the transfer")
	}
	l.cut[2] = true
	for range 30 * ElectionTicks {
		if l.at(firstTablet, 3).group.promise.barred() {
			t.Fatal("the promise to node 1 bars node 3, which follows node 2")
		}
		l.now += leaseTick
		l.promise(1, 3)
		for _, node := range []uint64{1, 3} {
			l.at(firstTablet, node).tick(true, false)
		}
		l.stabilize(nil)
		if l.at(firstTablet, 1).group.Elected() || l.at(firstTablet, 3).group.Elected() {
			return
		}
	}
	t.Error("nodes 1 and 3 elect nobody")
}

// TestDeathOfAForgottenLeader: a replica that has forgotten its leader campaigns when the leader's node
// is reported dead, although nobody voted for it before.
func TestDeathOfAForgottenLeader(t *testing.T) {
	l := newLeaseNet(0)
	l.at(firstTablet, 3).group.campaign()
	l.stabilize(nil)
	l.cut = map[uint64]bool{3: true, 4: true}
	l.at(firstTablet, 1).group.campaign()
	l.stabilize(nil)
	if l.at(firstTablet, 1).group.LeaderKnown() || !l.at(firstTablet, 2).group.LeaderKnown() {
		t.Fatal("node 1 must have forgotten its leader, and node 2 not")
	}
	l.down[3] = true
	for node := uint64(1); node <= 2; node++ {
		l.at(firstTablet, node).group.NodeDown(3)
	}
	l.stabilize(nil)
	if !l.at(firstTablet, 1).group.Elected() {
		t.Error("node 1 leads only after its election timeout")
	}
}

// TestLateAcknowledgment: an acknowledgment that waited for the disk until its sender had voted for
// another leader does not count for the lease.
func TestLateAcknowledgment(t *testing.T) {
	l := leased(t)
	first, second := l.at(firstTablet, 1), l.at(firstTablet, 2)
	must(first.group.Propose([]byte("late")))
	first.group.Wake()
	l.stabilizeBut(second)
	if len(second.appends) == 0 {
		t.Fatal("node 2 appends nothing")
	}
	// The promise runs out while node 2's disk is slow, and node 2 votes for node 3.
	l.now += liveness.Duration
	l.cut = map[uint64]bool{1: true, 4: true}
	for range 30 * ElectionTicks {
		for node := uint64(2); node <= 3; node++ {
			r := l.at(firstTablet, node)
			r.tick(true, false)
		}
		l.stabilizeBut(second)
		if second.group.raft.BasicStatus().GetTerm() > first.group.term {
			break
		}
	}
	l.promise(1, 2)
	clear(l.cut)
	for second.finishAppend() {
		second.ready()
	}
	for _, m := range l.take(func(m *wire.RaftMessage) bool { return m.ToNode == 1 && m.SupportEpoch != 0 }) {
		t.Errorf("LEASE-BROKEN: node 2 has voted in term %d, and acknowledges with an epoch: %s",
			second.group.term, describe(m))
	}
}

// stabilizeBut is stabilize, but the replica's writes do not end.
func (l *leaseNet) stabilizeBut(slow *replica) {
	for again := true; again; {
		again = false
		for _, r := range l.replicas {
			again = r.ready() || again
			if r != slow {
				again = r.finishAppend() || r.finishApply() || again
			}
		}
		for _, m := range l.take(func(*wire.RaftMessage) bool { return true }) {
			again = true
			l.deliver(m)
		}
	}
	l.out.Reset()
}

// TestLeasesRestOnTheBound: with clocks whose speeds differ by more than the bound the same faults
// break a lease, so TestLeases would notice if promises were too long.
func TestLeasesRestOnTheBound(t *testing.T) {
	for seed := range uint64(40 * leaseSeeds) {
		l := newLeaseNet(seed)
		for _, n := range l.nodes {
			n.speed = 1 + 10*(n.speed-1)
		}
		if err := l.run(30 * time.Second); err != nil {
			return
		}
	}
	t.Error("no lease is broken by clocks that differ by more than the bound")
}
