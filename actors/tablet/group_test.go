package tablet

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// cluster is some nodes, each with a store and replicas of tablets; their messages pass through
// memory.
type cluster struct {
	tb    testing.TB
	now   atomic.Uint64 // the last timestamp granted
	nodes map[uint64]*member
	dir   string // parent directory of the stores; "": in memory

	// first is the descriptor from which a node without a replica creates one when it receives a
	// message; the log from its beginning does the rest.
	first *pb.TabletDescriptor

	maxDelay time.Duration

	mu   sync.Mutex
	drop func(m *wire.RaftMessage) bool // nil: nothing is lost
	held chan func()                    // not nil: holds the oracle's answers until the test sends them
	sent int
}

// member is a node of the group, and the host of its tablets.
type member struct {
	g       *cluster
	id      uint64
	dir     string
	system  *actor.ActorSystem
	store   *store.Store
	logs    *writers.Pair
	readers *reads.Pool
	sums    *Checksums // nil: none are computed
	ticker  *Ticker
	spawns  sync.WaitGroup

	mu        sync.Mutex
	ports     map[uint64]*Port
	removed   map[uint64]bool
	made      map[uint64]bool
	free      atomic.Uint64 // free bytes on the disk
	loud      []string      // calls of Confirmed that succeeded while others could already be elected
	alone     PublishedLeadership
	idleHints IdleHints
}

// testTick is short, for tests that wait for elections.
const testTick = 20 * time.Millisecond

// groupTablet is the first tablet of a group.
const groupTablet = 2

// newGroup starts nodes 1 to n, of which the first voters have a replica of the tablet each. With
// tick 0 the test ticks.
func newGroup(tb testing.TB, n, voters int, tick time.Duration) *cluster {
	tb.Helper()
	return startGroup(&cluster{tb: tb, nodes: map[uint64]*member{}}, n, voters, tick)
}

// newGroupOnDisk is newGroup with nodes that can crash.
func newGroupOnDisk(tb testing.TB, n, voters int, tick time.Duration) *cluster {
	tb.Helper()
	return startGroup(&cluster{tb: tb, nodes: map[uint64]*member{}, dir: tb.TempDir()}, n, voters,
		tick)
}

func startGroup(g *cluster, n, voters int, tick time.Duration) *cluster {
	if tick == 0 {
		tick = time.Hour
	}
	for id := uint64(1); id <= uint64(n); id++ {
		g.nodes[id] = g.newMember(id, tick)
	}
	d := &pb.TabletDescriptor{
		TabletId: groupTablet, Epoch: 1, StartTable: 16, EndUnbounded: true,
		NextReplicaId: uint64(voters) + 1,
	}
	for id := uint64(1); id <= uint64(voters); id++ {
		d.Replicas = append(d.Replicas, &pb.Replica{ReplicaId: id, NodeId: id})
	}
	g.first = d
	for id := uint64(1); id <= uint64(voters); id++ {
		g.nodes[id].bootstrap(d, id)
	}
	for id := uint64(1); id <= uint64(voters); id++ {
		g.nodes[id].spawn(groupTablet)
	}
	g.tb.Cleanup(g.close)
	return g
}

func (g *cluster) newMember(id uint64, tick time.Duration) *member {
	logger := slog.New(slog.DiscardHandler)
	m := &member{
		g: g, id: id, system: actorkit.NewSystem(logger), ports: map[uint64]*Port{},
		removed: map[uint64]bool{}, made: map[uint64]bool{},
	}
	if g.dir != "" {
		m.dir = filepath.Join(g.dir, fmt.Sprint(id))
	}
	m.free.Store(math.MaxUint64)
	m.open()
	m.readers = reads.NewPool(1)
	m.ticker = NewTicker(m.system, tick)
	return m
}

// open opens the store of m.dir and starts its writers.
func (m *member) open() {
	logger := slog.New(slog.DiscardHandler)
	st, err := store.Open(store.Options{
		Dir: m.dir, InMemory: m.dir == "", MemTableSize: 16 << 20, Logger: logger,
		ReclaimInterval: -1,
		FreeBytes:       func() (uint64, error) { return m.free.Load(), nil },
	})
	if err != nil {
		m.g.tb.Fatal(err)
	}
	m.store = st
	m.logs = writers.Spawn(m.system, st, actorkit.BatchConfig{}, logger)
}

func (m *member) bootstrap(d *pb.TabletDescriptor, replica uint64) {
	b := &store.Batch{}
	Bootstrap(b, d, replica)
	if err := m.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		m.g.tb.Fatal(err)
	}
}

func (m *member) spawn(id uint64) {
	cfg := Config{
		Limits: mvcc.DefaultLimits(), Logger: slog.New(slog.DiscardHandler), NodeID: m.id,
		Ticker: m.ticker, IdleHints: &m.idleHints, Checksums: m.sums, MaxDelay: m.g.maxDelay,
	}
	if id == groupTablet {
		cfg.Leadership = &m.alone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := Spawn(m.system, m.store, m.logs, m.readers, id, m, cfg)
	if err != nil {
		m.g.tb.Error(err)
		return
	}
	m.ports[id] = p
}

func (m *member) port(id uint64) *Port {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ports[id]
}

// stop ends the tablet's actor here, as a crash of its process would: data already sent to the log
// is written.
func (m *member) stop(id uint64) {
	m.mu.Lock()
	p := m.ports[id]
	delete(m.ports, id)
	m.mu.Unlock()
	if p != nil {
		if err := m.system.Root.StopFuture(p.PID()).Wait(); err != nil {
			m.g.tb.Error(err)
		}
		if err := m.logs.Barrier(); err != nil {
			m.g.tb.Error(err)
		}
	}
}

// stopAll stops all tablets, also those that a split creates meanwhile.
func (m *member) stopAll() {
	for {
		m.spawns.Wait()
		m.mu.Lock()
		ids := slices.Collect(maps.Keys(m.ports))
		m.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			m.stop(id)
		}
	}
}

func (g *cluster) close() {
	// So that no message creates a replica of a stopped node. One that was under way may have: stop
	// twice.
	g.lose(func(*wire.RaftMessage) bool { return true })
	for _, m := range g.nodes {
		m.logs.GiveUp() // a test that has failed may have left a full disk
	}
	for range 2 {
		for _, m := range g.nodes {
			m.stopAll()
		}
	}
	for _, m := range g.nodes {
		m.ticker.Close()
		if err := m.logs.Stop(); err != nil {
			g.tb.Error(err)
		}
		m.readers.Close()
		if err := m.store.Close(); err != nil {
			g.tb.Error(err)
		}
		m.system.Shutdown()
	}
}

// lose sets which messages are lost from now on.
func (g *cluster) lose(drop func(m *wire.RaftMessage) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop = drop
}

// cut separates a node from all others; 0 heals everything.
func (g *cluster) cut(node uint64) {
	g.lose(func(m *wire.RaftMessage) bool {
		return node != 0 && (m.FromNode == node || m.ToNode == node)
	})
}

// SendRaft implements Host.
func (m *member) SendRaft(r *wire.RaftMessage) {
	g := m.g
	g.mu.Lock()
	g.sent++
	lost := g.drop != nil && g.drop(r)
	g.mu.Unlock()
	to := g.nodes[r.ToNode]
	if lost || to == nil {
		return
	}
	p := to.port(r.TabletId)
	if p == nil && r.TabletId == groupTablet && to.comes(r.ToReplica) {
		to.spawns.Go(func() {
			to.bootstrap(g.first, r.ToReplica)
			to.spawn(groupTablet)
		})
	}
	if p != nil {
		Receive(to.system, p.PID(), r)
	}
}

// comes reports, once, that a replica that is not one of the first is to be created here.
func (m *member) comes(replica uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if replica < m.g.first.NextReplicaId || m.made[replica] {
		return false
	}
	m.made[replica] = true
	return true
}

// kind returns the type of a message between replicas.
func kind(m *wire.RaftMessage) raftpb.MessageType {
	message := &raftpb.Message{}
	if err := proto.Unmarshal(m.Message, message); err != nil {
		panic(err)
	}
	return message.GetType()
}

// tick executes one tick on the nodes.
func (g *cluster) tick(nodes ...uint64) {
	for _, id := range nodes {
		g.nodes[id].ticker.tick()
	}
}

// elect ticks the nodes until one of them leads.
func (g *cluster) elect(tablet uint64, nodes ...uint64) (leader uint64) {
	g.tb.Helper()
	g.wait("an election", func() bool {
		g.tick(nodes...)
		for _, id := range nodes {
			if g.status(id, tablet).GetLeader() {
				leader = id
				return true
			}
		}
		return false
	})
	return leader
}

// others returns the nodes of the group except one.
func (g *cluster) others(but uint64) (ids []uint64) {
	for id := uint64(1); id <= uint64(len(g.nodes)); id++ {
		if id != but {
			ids = append(ids, id)
		}
	}
	return ids
}

// tell sends a request to the replica on a node without waiting.
func (g *cluster) tell(node, tablet uint64, req *pb.TabletRequest) <-chan result {
	g.tb.Helper()
	answer := make(chan result, 1)
	if err := g.nodes[node].port(tablet).Tell(req, time.Time{}, true, func(a result) {
		answer <- a
	}); err != nil {
		g.tb.Fatal(err)
	}
	return answer
}

// code waits for the answer and returns its error code.
func (g *cluster) code(answer <-chan result) pb.Error_Code {
	g.tb.Helper()
	select {
	case a := <-answer:
		if a.Err != nil {
			g.tb.Fatal(a.Err)
		}
		return a.Value.GetError().GetCode()
	case <-time.After(20 * time.Second):
		g.tb.Fatal("no answer within 20 s")
		return 0
	}
}

// change changes the replicas through the present leader and returns the descriptor.
func (g *cluster) change(tablet uint64, steps ...*pb.ReplicaChange) (d *pb.TabletDescriptor) {
	g.tb.Helper()
	g.wait(fmt.Sprintf("changed by %v", steps), func() bool {
		node := g.leader(tablet)
		s := g.status(node, tablet)
		if s == nil {
			return false
		}
		r := g.at(node, tablet, changeOf(s.Tablet.Epoch, steps...))
		switch r.GetError().GetCode() {
		case pb.Error_CODE_UNSPECIFIED:
			d = r.GetChangeReplicas().Tablet
			return true
		case pb.Error_CODE_INVALID:
			g.tb.Fatal(r.Error)
		}
		return false
	})
	return d
}

func changeOf(epoch uint64, steps ...*pb.ReplicaChange) *pb.TabletRequest {
	return &pb.TabletRequest{
		Epoch: epoch, Op: &pb.TabletRequest_ChangeReplicas{
			ChangeReplicas: &pb.ChangeReplicasRequest{Changes: steps},
		},
	}
}

func step(kind pb.ReplicaChange_Kind, node uint64) *pb.ReplicaChange {
	return &pb.ReplicaChange{Kind: kind, NodeId: node}
}

const (
	addLearner = pb.ReplicaChange_KIND_ADD_LEARNER
	promote    = pb.ReplicaChange_KIND_PROMOTE
	demote     = pb.ReplicaChange_KIND_DEMOTE
	dismiss    = pb.ReplicaChange_KIND_REMOVE
)

func (m *member) Timestamps(n int, _ *tracing.Span, then func(mvcc.Timestamp, error)) {
	first := m.g.take(n)
	m.g.mu.Lock()
	held := m.g.held
	m.g.mu.Unlock()
	if held != nil {
		held <- func() { then(first, nil) }
		return
	}
	then(first, nil)
}
func (m *member) TimestampsNow(int) (mvcc.Timestamp, bool) { return 0, false }
func (m *member) Hint([]mvcc.Cell)                         {}
func (m *member) Leading(*pb.TabletDescriptor)             {}
func (m *member) Following(uint64, uint64)                 {}
func (m *member) Failed(id uint64, err error) {
	m.g.tb.Errorf("tablet %d on node %d: %v", id, m.id, err)
}

func (m *member) SplitApplied(_, right *pb.TabletDescriptor) {
	m.spawns.Go(func() { m.spawn(right.TabletId) })
}

func (m *member) Merging(by *snapshot.Merge) {
	m.g.tb.Errorf("tablet %d is merged on node %d", by.Right.TabletId, m.id)
}

func (m *member) Changed(d *pb.TabletDescriptor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, _, said := m.alone.Confirmed(); said && len(group.ConfState(d).Voters) > 1 {
		m.loud = append(m.loud, d.String())
	}
}

func (m *member) Stale(uint64) {}

func (m *member) Removed(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed[id] = true
}

func (g *cluster) take(n int) mvcc.Timestamp {
	return mvcc.Timestamp(g.now.Add(uint64(n))) - mvcc.Timestamp(n) + 1
}
