package node_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
)

// rig is some nodes in one process, with a network in memory and one list of members, which all of
// them see at once. Nodes are numbered from 0; their stores survive them.
type rig struct {
	t       testing.TB
	network *memlink.Network
	members *hub
	change  func(i int, c *node.Config)
	stores  []*store.Store
	nodes   []*node.Node // nil: it is down
	cluster string
	ahead   map[int]time.Duration // of the clocks of nodes
	free    []*atomic.Uint64      // bytes on the nodes' disks
	traces  trace.TracerProvider
	halted  []*atomic.Int64 // when the nodes' clocks were stopped, in Unix nanoseconds; 0: running
}

// newRig starts n nodes. The first founds a cluster, the others join it.
func newRig(t testing.TB, size int, change func(i int, c *node.Config)) *rig {
	t.Helper()
	return newTracedRig(t, size, change, nil)
}

// newTracedRig is newRig with nodes that send their spans to the provider.
func newTracedRig(t testing.TB, size int, change func(i int, c *node.Config),
	traces trace.TracerProvider) *rig {
	t.Helper()
	r := &rig{
		t: t, network: memlink.NewNetwork(), members: newHub(), change: change, traces: traces,
	}
	t.Cleanup(func() {
		for i := range r.nodes {
			r.stop(i)
		}
		for _, st := range r.stores {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for range size {
		r.add()
	}
	return r
}

// add starts one more node.
func (r *rig) add() *node.Node {
	r.t.Helper()
	st, free := fillableDisk(r.t)
	r.free, r.halted = append(r.free, free), append(r.halted, &atomic.Int64{})
	i := len(r.stores)
	r.stores, r.nodes = append(r.stores, st), append(r.nodes, nil)
	if i > 0 {
		r.adopt(st)
	}
	n := r.start(i)
	r.cluster = n.Status().ClusterId
	return n
}

// adopt gives an empty store the identity of a node of the cluster.
func (r *rig) adopt(st *store.Store) {
	r.t.Helper()
	self, err := join.OpenSelf(st)
	if err == nil {
		err = self.Joined(&pb.JoinResponse{ClusterId: r.cluster})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// start opens a node on its store.
func (r *rig) start(i int) *node.Node {
	r.t.Helper()
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Store.InMemory = "127.0.0.1:0", "", true, true
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelWarn})).With("node", i)
	if r.change != nil {
		r.change(i, &cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ahead, halted := r.ahead[i], r.halted[i]
	n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{
		Clock: func() time.Time {
			if at := halted.Load(); at != 0 {
				return time.Unix(0, at)
			}
			return time.Now().Add(ahead)
		},
		Store: r.stores[i], Traces: r.traces,
		Link: func(self peer.Self) (peer.Link, error) {
			return r.network.Link(self.NodeID), nil
		},
		Members: func(self cluster.Member) (cluster.Members, error) {
			return r.members.join(self), nil
		},
	})
	if err != nil {
		r.t.Fatalf("node %d: %v", i, err)
	}
	r.nodes[i] = n
	return n
}

// stop shuts a node down; the others see it leave.
func (r *rig) stop(i int) {
	n := r.nodes[i]
	if n == nil {
		return
	}
	r.nodes[i] = nil
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := n.Status().NodeId
	if err := n.Close(ctx); err != nil {
		r.t.Error(err)
	}
	r.members.leave(id)
}

// crash isolates a node, reports it dead to the others, and ends it. Nodes that a test has isolated
// stay isolated.
func (r *rig) crash(i int) {
	n := r.nodes[i]
	r.nodes[i] = nil
	id := n.Status().NodeId
	r.network.Isolate(id)
	r.members.leave(id)
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // no time to drain
	_ = n.Close(ctx)
	r.network.Reconnect(id)
}

// id is the node's id in the cluster.
func (r *rig) id(i int) uint64 { return r.nodes[i].Status().NodeId }

// hub is the membership shared by all nodes, without delay.
type hub struct {
	mu       sync.Mutex
	alive    map[uint64]cluster.Member
	dead     map[mvcc.Worker]bool
	watchers map[int]func(cluster.MemberEvent)
	next     int
}

var _ cluster.Members = (*hub)(nil)

func newHub() *hub {
	return &hub{
		alive: map[uint64]cluster.Member{}, dead: map[mvcc.Worker]bool{},
		watchers: map[int]func(cluster.MemberEvent){},
	}
}

// seat is one node's view of the hub.
type seat struct {
	*hub
	id uint64
}

// Set changes the node's own entry.
func (s seat) Set(change func(*cluster.Member)) {
	s.mu.Lock()
	m, ok := s.alive[s.id]
	if change(&m); ok {
		s.alive[s.id] = m
	}
	s.mu.Unlock()
	if ok {
		s.tell(cluster.MemberEvent{Member: m, Alive: true})
	}
}

func (h *hub) join(m cluster.Member) cluster.Members {
	h.mu.Lock()
	if before, ok := h.alive[m.NodeID]; ok && before.Incarnation < m.Incarnation {
		h.dead[workerOf(before)] = true
	}
	h.alive[m.NodeID] = m
	h.mu.Unlock()
	h.tell(cluster.MemberEvent{Member: m, Alive: true})
	return seat{h, m.NodeID}
}

func (h *hub) leave(id uint64) {
	h.mu.Lock()
	m, ok := h.alive[id]
	delete(h.alive, id)
	h.dead[workerOf(m)] = true
	h.mu.Unlock()
	if ok {
		h.tell(cluster.MemberEvent{Member: m})
	}
}

func workerOf(m cluster.Member) mvcc.Worker {
	return mvcc.Worker{Node: m.NodeID, Incarnation: m.Incarnation}
}

func (h *hub) tell(e cluster.MemberEvent) {
	h.mu.Lock()
	var fns []func(cluster.MemberEvent)
	for _, fn := range h.watchers {
		fns = append(fns, fn)
	}
	h.mu.Unlock()
	for _, fn := range fns {
		fn(e)
	}
}

// Alive implements cluster.Members.
func (h *hub) Alive() []cluster.Member {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []cluster.Member
	for _, m := range h.alive {
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
func (h *hub) Member(id uint64) (cluster.Member, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.alive[id]
	return m, ok
}

// Dead implements cluster.Members.
func (h *hub) Dead(w mvcc.Worker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead[w]
}

// Watch implements cluster.Members.
func (h *hub) Watch(fn func(cluster.MemberEvent)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.next
	h.next++
	h.watchers[id] = fn
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, id)
	}
}
