package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/store"
)

// TestExpectFoundsOneCluster: nodes with empty directories that crash, lose messages and
// occasionally a directory found one cluster, never two, and all of them are members in the end.
// SEEDS sets the number of histories.
func TestExpectFoundsOneCluster(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("SEEDS"), "40"), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { onTestNetwork(t, seed, expectOne) })
	}
}

func expectOne(s *testNetwork) {
	n := 2 + s.dice(4)
	var addrs []string
	for i := range n {
		addrs = append(addrs, string(rune('a'+i)))
	}
	join := addrs
	if s.dice(2) == 0 {
		join = addrs[:1] // all know only one, itself included
	}
	s.lossy = true
	for _, addr := range addrs {
		s.build(addr, n, join...).start()
	}
	for range s.dice(30) { // faults
		h := s.nodes[addrs[s.dice(n)]]
		<-time.After(time.Duration(s.dice(1500)) * time.Millisecond)
		h.crash()
		if s.dice(5) == 0 {
			s.emptyDirectory(h)
		}
		<-time.After(time.Duration(s.dice(3000)) * time.Millisecond)
		h.start()
	}
	s.mu.Lock()
	s.lossy = false
	s.mu.Unlock()
	if err := s.settle(5 * time.Minute); err != nil {
		s.t.Error(err)
	}
	if _, begun := s.registered(0); len(begun) != 1 {
		s.t.Errorf("TWO-CLUSTERS: clusters were begun at %v", begun)
	}
}

// emptyDirectory empties a dead node's directory, unless it may have founded the cluster or the others wait
// for it: then only an operator can help.
func (s *testNetwork) emptyDirectory(h *testNode) {
	own := h.self.Identity()
	if !own.Fresh() {
		return
	}
	for _, other := range s.nodes {
		other.life.RLock()
		other.self.mu.Lock() // it may be making a promise
		waits := other.self.record.Promised == own.NodeID
		other.self.mu.Unlock()
		other.life.RUnlock()
		if waits {
			return
		}
	}
	if err := h.st.Close(); err != nil {
		s.t.Error(err)
	}
	st, err := store.Open(store.Options{InMemory: true, MemTableSize: 1 << 20})
	if err != nil {
		s.t.Error(err)
	}
	h.st = st
}

// TestPromiseIsKept: a node that has promised one founder refuses another, also after a restart,
// until it belongs to a cluster.
func TestPromiseIsKept(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		h := s.build("a", 3, "nowhere")
		h.start()
		own := h.self.Identity().NodeID
		attempt, back := uint64(1), false
		ask := func(founder uint64, expect uint32, nodes ...uint64) (*pb.FoundResponse, error) {
			return h.membership.Found(t.Context(),
				&pb.FoundRequest{
					Founder: founder, Expect: expect, Nodes: nodes, Attempt: attempt,
					Withdraw: back,
				})
		}
		if r, err := ask(7, 3, 7, 8, own); err != nil || !r.Granted || r.Founder != 7 {
			t.Fatalf("the first: %v, %v", r, err)
		}
		h.crash()
		h.start()
		if r, err := ask(8, 3, 7, 8, own); err != nil || r.Granted || r.Founder != 7 {
			t.Fatalf("TWO-PROMISES: another: %v, %v", r, err)
		}
		if r, err := ask(7, 3, 7, 9, own); err != nil || !r.Granted {
			t.Fatalf("the first again: %v, %v", r, err)
		}
		attempt = 5
		if r, err := ask(7, 3, 7, 8, own); err != nil || !r.Granted {
			t.Fatalf("a later attempt: %v, %v", r, err)
		}
		for _, late := range []struct{ founder, attempt, holder uint64 }{{7, 4, 7}, {8, 9, 7},
			{7, 5, 8}, {7, 9, 8}} {
			attempt, back = late.attempt, true
			if _, err := ask(late.founder, 3, 7, 8, own); err != nil {
				t.Fatal(err)
			}
			attempt, back = 5, false
			if r, err := ask(8, 3, 7, 8, own); err != nil || r.Founder != late.holder {
				t.Fatalf("attempt %d of %d is released: %v, %v", late.attempt, late.founder, r,
					err)
			}
		}
		for _, bad := range []struct {
			founder uint64
			expect  uint32
			nodes   []uint64
		}{{7, 3, []uint64{7, 8, 9}}, {7, 2, []uint64{7, own}}, {0, 3, []uint64{0, 1, own}},
			{own, 3, []uint64{own, 7, 8}}, {7, 3, []uint64{7, own}}} {
			if r, err := ask(bad.founder, bad.expect,
				bad.nodes...); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("%+v: %v, %v", bad, r, err)
			}
		}
		if err := h.self.Begin(nil); !errors.Is(err, ErrWaiting) {
			t.Errorf("a cluster of its own after a promise: %v", err)
		}
		if err := h.self.Found(nil); err == nil {
			t.Error("founded although another has the promise")
		}
	})
}

// TestTooManyFoundNothing: more nodes than expected found no cluster, since it is unknown which of
// them belong together.
func TestTooManyFoundNothing(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		for _, addr := range []string{"a", "b", "c"} {
			s.build(addr, 2, "a", "b", "c").start()
		}
		<-time.After(time.Minute)
		if len(s.begun) != 0 || !strings.Contains(s.told(), "more nodes than expected") {
			t.Errorf("begun: %v", s.begun)
		}
		s.remove("c")
		if err := s.settle(time.Minute); err != nil || len(s.begun) != 1 {
			t.Errorf("two are left: %v, begun %v", err, s.begun)
		}
	})
}

// TestJoinWaits: a joining node waits without limit and logs it, with pauses.
func TestJoinWaits(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		b := s.build("b", 1, "a", "gone")
		b.start()
		<-time.After(time.Hour)
		if got := strings.Count(s.told(), "waiting to join a cluster"); got < 60 || got > 130 {
			t.Errorf("%d lines in an hour", got)
		}
		a := s.build("a", 1)
		a.start()
		if err := s.settle(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		record, begun := s.registered(b.self.Identity().NodeID)
		if len(begun) != 1 || begun[0] != "a" ||
			b.self.Contacts().Meta.GetTabletId() != cluster.MetaTablet || record == nil {
			t.Errorf("begun %v, contacts %v", begun, b.self.Contacts())
		}
	})
}

// TestWaitingEndsAtOnce: the wait ends at once with its context, as on SIGTERM.
func TestWaitingEndsAtOnce(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		h := s.build("a", 1, "nowhere")
		h.start()
		<-time.After(time.Minute)
		began := time.Now()
		h.cancel()
		if err := <-h.entered; !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestDuplicateThatStopped: a fresh node that was refused as a duplicate, then for another reason, is
// not refused for good when the first error returns.
func TestDuplicateThatStopped(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		s.build("a", 1).start()
		duplicate := fmt.Errorf("%w: try", cluster.ErrDuplicateNode)
		s.say(duplicate)
		b := s.build("b", 1, "a")
		b.start()
		<-time.After(duplicatePause - 5*time.Second)
		s.say(errors.New("meta has no leader"))
		<-time.After(time.Minute)
		s.say(duplicate)
		select {
		case err := <-b.entered:
			t.Fatalf("%v", err)
		case <-time.After(duplicatePause - 5*time.Second):
		}
		if err := <-b.entered; !errors.Is(err, cluster.ErrDuplicateNode) {
			t.Errorf("%v", err)
		}
	})
}

// TestComeBack: a member starts also when no other node answers, registers when one does, and logs
// why it could not.
func TestComeBack(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, b := s.build("a", 1), s.build("b", 1, "a")
		enter := func(h *testNode) error {
			h.crash()
			h.start()
			return <-h.entered
		}
		a.start()
		b.start()
		if err := s.settle(time.Minute); err != nil {
			t.Fatal(err)
		}
		a.crash()
		if err := enter(b); err != nil {
			t.Errorf("all others are away: %v", err)
		}
		if err := enter(a); err != nil {
			t.Errorf("the founder returns: %v", err)
		}
		err := enter(b)
		if record, _ := s.registered(b.self.Identity().NodeID); err != nil ||
			record.GetIncarnation() != b.self.Identity().Incarnation {
			t.Errorf("%v: registered %v as %+v", err, record, b.self.Identity())
		}
		s.say(fmt.Errorf("%w: try", cluster.ErrStaleIncarnation))
		if err := enter(b); !errors.Is(err, cluster.ErrStaleIncarnation) {
			t.Errorf("stale: %v", err)
		}
		s.say(fmt.Errorf("%w: try", cluster.ErrDuplicateNode))
		began := time.Now()
		if err := enter(b); !errors.Is(err, cluster.ErrDuplicateNode) ||
			time.Since(began) < 10*time.Second {
			t.Errorf("duplicate: %v after %v", err, time.Since(began))
		}
		s.say(errors.New("meta has no leader"))
		if err := enter(b); err != nil {
			t.Errorf("meta is away: %v", err)
		}
	})
}

// TestComeBackElsewhere: all nodes return at new addresses and cannot reach each other for a
// minute. Then each learns the others' gossip addresses; otherwise they would wait for each other
// forever.
func TestComeBackElsewhere(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, b := s.build("a", 1), s.build("b", 1, "a")
		a.start()
		b.start()
		if err := s.settle(time.Minute); err != nil {
			t.Fatal(err)
		}
		a.crash()
		b.crash()
		a.gossip, b.gossip = "elsewhere:1", "elsewhere:2"
		s.say(errors.New("meta has no leader"))
		ctx, cancel := context.WithCancel(context.Background())
		var seeking sync.WaitGroup
		defer seeking.Wait()
		defer cancel()
		s.hide(a, b)
		for _, h := range []*testNode{b, a} {
			h.start()
			if err := <-h.entered; err != nil {
				t.Fatal(err)
			}
			seeking.Go(func() { h.membership.Seek(ctx) })
		}
		<-time.After(time.Minute)
		s.show(a, b)
		<-time.After(time.Minute)
		if in, of := fmt.Sprint(a.membership.Met()), fmt.Sprint(b.membership.Met()); in != "[elsewhere:2]" ||
			of != "[elsewhere:1]" {
			t.Errorf("the others gossip at %v by a, at %v by b", in, of)
		}
	})
}

// TestTwoClustersAreRefused: a new node whose addresses belong to two clusters joins neither.
func TestTwoClustersAreRefused(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, x, fresh := s.build("a", 1), s.build("x", 1), s.build("fresh", 1, "a", "x")
		a.start()
		x.start()
		<-time.After(time.Second)
		fresh.start()
		if err := <-fresh.entered; !errors.Is(err, ErrOtherCluster) {
			t.Errorf("%v", err)
		}
		if !fresh.self.Identity().Fresh() {
			t.Errorf("it is of cluster %s", fresh.self.Identity().ClusterID)
		}
	})
}

// TestOtherClusterIsRefused: a node of another cluster is refused, by the calling node and by the
// called one.
func TestOtherClusterIsRefused(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		a, x := s.build("a", 1), s.build("x", 1)
		a.start()
		x.start()
		<-time.After(time.Second)
		x.crash()
		x.join = []string{"a"}
		x.start()
		err := <-x.entered
		if !errors.Is(err, ErrOtherCluster) || !strings.Contains(err.Error(), "empty directory") {
			t.Errorf("%v", err)
		}
		_, err = a.membership.Join(t.Context(),
			&pb.JoinRequest{ClusterId: "other", NodeId: 3, Incarnation: 1})
		if got := joinError(err); !errors.Is(got, ErrOtherCluster) {
			t.Errorf("the one that is queried: %v", got)
		}
	})
}

// TestHelloIsBounded: callers of Hello with invented names take a bounded number of places, and
// none forever.
func TestHelloIsBounded(t *testing.T) {
	onTestNetwork(t, 1, func(s *testNetwork) {
		h := s.build("a", 3, "a")
		h.start()
		say := func(node uint64, addr string) *pb.HelloResponse {
			r, err := h.membership.Hello(t.Context(),
				&pb.HelloRequest{
					NodeId: node, Addresses: &pb.NodeAddresses{Listen: addr}, Expect: 3,
				})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for i := range uint64(10 * maxFresh) {
			say(i, fmt.Sprint("nowhere", i))
		}
		say(1<<40, strings.Repeat("x", maxAddress+1))
		if r := say(0, ""); len(r.Fresh) != maxFresh {
			t.Errorf("%d are remembered", len(r.Fresh))
		}
		if n := len(h.membership.targets()); n > maxFresh+1 {
			t.Errorf("%d addresses are queried", n)
		}
		<-time.After(time.Minute)
		if r := say(9999, "b"); len(r.Fresh) != 1 {
			t.Errorf("a minute later %d are told of", len(r.Fresh))
		}
		if len(s.begun) != 0 {
			t.Error("made-up nodes founded a cluster")
		}
	})
}

// TestRefusalsTravel: a node refused by meta receives the reason through the node that it called.
func TestRefusalsTravel(t *testing.T) {
	for _, why := range []error{cluster.ErrDuplicateNode, cluster.ErrStaleIncarnation,
		cluster.ErrForgotten, version.ErrIncompatible} {
		if err := joinError(joinStatus(fmt.Errorf("%w: node 7", why))); !errors.Is(err, why) ||
			!isRefusal(err) {
			t.Errorf("%v became %v", why, err)
		}
	}
}
