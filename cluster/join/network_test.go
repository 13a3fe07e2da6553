package join

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// testNetwork is a network of nodes in one bubble of virtual time. The seed decides which messages are
// delayed and lost.
type testNetwork struct {
	t   *testing.T
	log strings.Builder

	mu      sync.Mutex
	rng     *rand.Rand
	lossy   bool
	begun   []string // "addr" of each store in which a cluster was founded
	nodes   map[string]*testNode
	refuse  error                       // the registry's error
	records map[uint64]*wire.NodeRecord // registered nodes
}

// testNode is one node: its directory, and its process while it lives.
type testNode struct {
	s      *testNetwork
	addr   string
	gossip string
	join   []string
	expect int
	voters []uint64
	st     *store.Store
	ahead  time.Duration    // offset of its clock
	wrong  map[string]error // errors in place of answers, by address

	versions version.Range // supported by its build

	life       sync.RWMutex // read-locked by calls into the process
	membership *Membership  // nil: the process is dead
	self       *Self
	gate       *version.Gate
	cancel     context.CancelFunc

	entered chan error    // result of Enter
	ended   chan struct{} // closed when the process has ended
}

func newTestNetwork(t *testing.T, seed uint64) *testNetwork {
	return &testNetwork{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]*testNode{},
		records: map[uint64]*wire.NodeRecord{},
	}
}

func (s *testNetwork) dice(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// build adds a node with an empty directory.
func (s *testNetwork) build(addr string, expect int, join ...string) *testNode {
	st, err := store.Open(store.Options{InMemory: true, MemTableSize: 1 << 20})
	if err != nil {
		s.t.Fatal(err)
	}
	h := &testNode{s: s, addr: addr, gossip: "g" + addr, join: join, expect: expect, st: st,
		versions: version.Known()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[addr] = h
	return h
}

// start starts a process.
func (h *testNode) start() {
	self, err := OpenSelf(h.st)
	if err != nil {
		h.s.t.Error(err)
		return
	}
	gate := version.NewGate(h.versions, h.st.Version(), h.st.RaiseVersion)
	ctx, cancel := context.WithCancel(context.Background())
	membership := NewMembership(MembershipConfig{
		Gate: gate, Version: "1.2", Self: self, Contact: h, Join: h.join, Expect: h.expect, Voters: h.voters,
		Addresses:   &pb.NodeAddresses{Listen: h.addr, Gossip: h.gossip},
		Clock:       func() time.Time { return time.Now().Add(h.ahead) },
		MaxClockOff: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(h.s,
			&slog.HandlerOptions{Level: slog.LevelInfo})).With("at", h.addr),
		Bootstrap: func(b *store.Batch, node uint64) {
			h.s.mu.Lock()
			defer h.s.mu.Unlock()
			h.s.begun = append(h.s.begun, h.addr)
		},
	})
	entered, ended := make(chan error, 1), make(chan struct{})
	h.life.Lock()
	h.membership, h.self, h.cancel, h.entered, h.ended = membership, self, cancel, entered, ended
	h.gate = gate
	h.life.Unlock()
	go func() {
		err := membership.Enter(ctx)
		entered <- err
		if err == nil {
			membership.Open(h.s)
			if err := membership.Upkeep(ctx, h.s); err != nil && !h.s.refused() {
				h.s.t.Error(err)
			}
		}
		close(ended)
	}()
}

// crash ends the process at an arbitrary point; data received just before is stored or not.
func (h *testNode) crash() {
	h.life.Lock()
	if h.membership == nil {
		h.life.Unlock()
		return
	}
	h.membership = nil
	cancel, ended := h.cancel, h.ended
	h.life.Unlock()
	cancel()
	<-ended
}

// Write implements io.Writer for the log.
func (s *testNetwork) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

var errLost = status.Error(codes.Unavailable, "lost")

// deliver delivers a request to a node and its answer back, unless one of them is lost.
func deliver[R any](ctx context.Context, s *testNetwork, addr string,
	ask func(d *Membership) (R, error)) (none R, err error) {
	travel := func() error {
		s.mu.Lock()
		lost := s.lossy && s.rng.IntN(6) == 0
		after := time.Duration(1+s.rng.IntN(300)) * time.Millisecond
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(after):
		}
		if lost {
			return errLost
		}
		return nil
	}
	if err := travel(); err != nil {
		return none, err
	}
	s.mu.Lock()
	h := s.nodes[addr]
	s.mu.Unlock()
	if h == nil {
		return none, errLost
	}
	r, err := func() (R, error) {
		h.life.RLock()
		defer h.life.RUnlock()
		if h.membership == nil {
			return none, errLost
		}
		return ask(h.membership)
	}()
	if lost := travel(); lost != nil {
		return none, lost
	}
	return r, err
}

func (h *testNode) Hello(ctx context.Context, addr string,
	req *pb.HelloRequest) (*pb.HelloResponse, error) {
	if err := h.wrong[addr]; err != nil {
		return nil, err
	}
	return deliver(ctx, h.s, addr, func(d *Membership) (*pb.HelloResponse, error) {
		return d.Hello(ctx, req)
	})
}

func (h *testNode) Join(ctx context.Context, addr string,
	req *pb.JoinRequest) (*pb.JoinResponse, error) {
	return deliver(ctx, h.s, addr, func(d *Membership) (*pb.JoinResponse, error) {
		return d.Join(ctx, req)
	})
}

func (h *testNode) Found(ctx context.Context, addr string,
	req *pb.FoundRequest) (*pb.FoundResponse, error) {
	return deliver(ctx, h.s, addr, func(d *Membership) (*pb.FoundResponse, error) {
		return d.Found(ctx, req)
	})
}

// Register implements Registry.
func (s *testNetwork) Register(_ context.Context, r *wire.NodeRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		s.records[r.NodeId] = r
	}
	return s.refuse
}

// Contacts implements Registry.
func (s *testNetwork) Contacts(context.Context) (*pb.JoinResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &pb.JoinResponse{Meta: cluster.FirstTablets(1)[0]}
	for _, r := range s.records {
		known := &pb.Node{NodeId: r.NodeId, Listen: r.Listen, Incarnation: r.Incarnation}
		if len(r.Starts) > 0 {
			known.Start = r.Starts[len(r.Starts)-1]
		}
		out.Nodes = append(out.Nodes, known)
	}
	return out, nil
}

// told returns the log of all nodes so far.
func (s *testNetwork) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// registered returns the node's record, and where clusters were founded.
func (s *testNetwork) registered(node uint64) (*wire.NodeRecord, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[node], slices.Clone(s.begun)
}

// say sets the registry's error.
func (s *testNetwork) say(refuse error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *testNetwork) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse != nil
}

// close ends all nodes.
func (s *testNetwork) close() {
	for addr := range s.nodes {
		s.remove(addr)
	}
}

// remove removes a node for good.
func (s *testNetwork) remove(addr string) {
	h := s.nodes[addr]
	h.crash()
	if err := h.st.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, addr)
}

// hide makes nodes unreachable, and show makes them reachable again.
func (s *testNetwork) hide(all ...*testNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range all {
		delete(s.nodes, h.addr)
	}
}

func (s *testNetwork) show(all ...*testNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range all {
		s.nodes[h.addr] = h
	}
}

func (h *testNode) cluster() string {
	h.life.RLock()
	defer h.life.RUnlock()
	if h.self == nil {
		return ""
	}
	return h.self.Identity().ClusterID
}

// settle waits until all nodes belong to one cluster.
func (s *testNetwork) settle(within time.Duration) error {
	for began := time.Now(); ; {
		ids := map[string]bool{}
		for _, h := range s.nodes {
			ids[h.cluster()] = true
		}
		if len(ids) == 1 && !ids[""] {
			return nil
		}
		if time.Since(began) > within {
			return fmt.Errorf("after %v the nodes are in %d clusters (%v)", within, len(ids), ids)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// onTestNetwork runs a test in virtual time.
func onTestNetwork(t *testing.T, seed uint64, fn func(s *testNetwork)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newTestNetwork(t, seed)
		defer s.close()
		fn(s)
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, s.told())
		}
	})
}
