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

// street is a network of nodes in one bubble of virtual time. The seed decides which messages are
// delayed and lost.
type street struct {
	t   *testing.T
	log strings.Builder

	mu      sync.Mutex
	rng     *rand.Rand
	lossy   bool
	begun   []string // "addr" of each store in which a cluster was founded
	houses  map[string]*house
	refuse  error                       // the registry's error
	records map[uint64]*wire.NodeRecord // registered nodes
}

// house is one node: its directory, and its process while it lives.
type house struct {
	s      *street
	addr   string
	gossip string
	join   []string
	expect int
	voters []uint64
	st     *store.Store
	ahead  time.Duration    // offset of its clock
	wrong  map[string]error // errors in place of answers, by address

	versions version.Range // supported by its build

	life   sync.RWMutex // read-locked by calls into the process
	door   *Membership  // nil: the process is dead
	self   *Self
	gate   *version.Gate
	cancel context.CancelFunc

	entered chan error    // result of Enter
	ended   chan struct{} // closed when the process has ended
}

func newStreet(t *testing.T, seed uint64) *street {
	return &street{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), houses: map[string]*house{},
		records: map[uint64]*wire.NodeRecord{},
	}
}

func (s *street) dice(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// build adds a node with an empty directory.
func (s *street) build(addr string, expect int, join ...string) *house {
	st, err := store.Open(store.Options{InMemory: true, MemTableSize: 1 << 20})
	if err != nil {
		s.t.Fatal(err)
	}
	h := &house{s: s, addr: addr, gossip: "g" + addr, join: join, expect: expect, st: st,
		versions: version.Known()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.houses[addr] = h
	return h
}

// start starts a process.
func (h *house) start() {
	self, err := OpenSelf(h.st)
	if err != nil {
		h.s.t.Error(err)
		return
	}
	gate := version.NewGate(h.versions, h.st.Version(), h.st.RaiseVersion)
	ctx, cancel := context.WithCancel(context.Background())
	door := NewMembership(MembershipConfig{
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
	h.door, h.self, h.cancel, h.entered, h.ended = door, self, cancel, entered, ended
	h.gate = gate
	h.life.Unlock()
	go func() {
		err := door.Enter(ctx)
		entered <- err
		if err == nil {
			door.Open(h.s)
			if err := door.Upkeep(ctx, h.s); err != nil && !h.s.refused() {
				h.s.t.Error(err)
			}
		}
		close(ended)
	}()
}

// crash ends the process at an arbitrary point; data received just before is stored or not.
func (h *house) crash() {
	h.life.Lock()
	if h.door == nil {
		h.life.Unlock()
		return
	}
	h.door = nil
	cancel, ended := h.cancel, h.ended
	h.life.Unlock()
	cancel()
	<-ended
}

// Write implements io.Writer for the log.
func (s *street) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

var errLost = status.Error(codes.Unavailable, "lost")

// carry delivers a request to a node and its answer back, unless one of them is lost.
func carry[R any](ctx context.Context, s *street, addr string,
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
	h := s.houses[addr]
	s.mu.Unlock()
	if h == nil {
		return none, errLost
	}
	r, err := func() (R, error) {
		h.life.RLock()
		defer h.life.RUnlock()
		if h.door == nil {
			return none, errLost
		}
		return ask(h.door)
	}()
	if lost := travel(); lost != nil {
		return none, lost
	}
	return r, err
}

func (h *house) Hello(ctx context.Context, addr string,
	req *pb.HelloRequest) (*pb.HelloResponse, error) {
	if err := h.wrong[addr]; err != nil {
		return nil, err
	}
	return carry(ctx, h.s, addr, func(d *Membership) (*pb.HelloResponse, error) {
		return d.Hello(ctx, req)
	})
}

func (h *house) Join(ctx context.Context, addr string,
	req *pb.JoinRequest) (*pb.JoinResponse, error) {
	return carry(ctx, h.s, addr, func(d *Membership) (*pb.JoinResponse, error) {
		return d.Join(ctx, req)
	})
}

func (h *house) Found(ctx context.Context, addr string,
	req *pb.FoundRequest) (*pb.FoundResponse, error) {
	return carry(ctx, h.s, addr, func(d *Membership) (*pb.FoundResponse, error) {
		return d.Found(ctx, req)
	})
}

// Register implements Registry.
func (s *street) Register(_ context.Context, r *wire.NodeRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse == nil {
		s.records[r.NodeId] = r
	}
	return s.refuse
}

// Contacts implements Registry.
func (s *street) Contacts(context.Context) (*pb.JoinResponse, error) {
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
func (s *street) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// registered returns the node's record, and where clusters were founded.
func (s *street) registered(node uint64) (*wire.NodeRecord, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[node], slices.Clone(s.begun)
}

// say sets the registry's error.
func (s *street) say(refuse error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

func (s *street) refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse != nil
}

// close ends all nodes.
func (s *street) close() {
	for addr := range s.houses {
		s.demolish(addr)
	}
}

// demolish removes a node for good.
func (s *street) demolish(addr string) {
	h := s.houses[addr]
	h.crash()
	if err := h.st.Close(); err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.houses, addr)
}

// hide makes nodes unreachable, and show makes them reachable again.
func (s *street) hide(all ...*house) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range all {
		delete(s.houses, h.addr)
	}
}

func (s *street) show(all ...*house) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range all {
		s.houses[h.addr] = h
	}
}

func (h *house) cluster() string {
	h.life.RLock()
	defer h.life.RUnlock()
	if h.self == nil {
		return ""
	}
	return h.self.Identity().ClusterID
}

// settle waits until all nodes belong to one cluster.
func (s *street) settle(within time.Duration) error {
	for began := time.Now(); ; {
		ids := map[string]bool{}
		for _, h := range s.houses {
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

// onStreet runs a test in virtual time.
func onStreet(t *testing.T, seed uint64, fn func(s *street)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, seed)
		defer s.close()
		fn(s)
		if t.Failed() {
			t.Logf("seed %d\n%s", seed, s.told())
		}
	})
}
