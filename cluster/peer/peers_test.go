package peer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// handler answers with the request, or by fn, and records Raft messages.
type handler struct {
	fn func(from uint64, deadline time.Time, req *wire.PeerRequest, reply func(*wire.PeerResponse))

	mu   sync.Mutex
	raft []uint64 // tablet ids
}

func (h *handler) Request(from uint64, deadline time.Time, req *wire.PeerRequest,
	reply func(*wire.PeerResponse)) {
	if h.fn != nil {
		h.fn(from, deadline, req, reply)
		return
	}
	reply(answer(req.GetHonour().GetVersion()))
}

func (h *handler) Raft(m *wire.RaftMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.raft = append(h.raft, m.GetTabletId())
}

func (h *handler) got() []uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.raft
}

func ask(version uint64) *wire.PeerRequest {
	return &wire.PeerRequest{
		Body: &wire.PeerRequest_Honour{Honour: &wire.HonourCatalogue{Version: version}},
	}
}

// large returns a request of n bytes.
func large(size int) *wire.PeerRequest {
	return &wire.PeerRequest{
		Body: &wire.PeerRequest_Snapshot{
			Snapshot: &wire.SnapshotChunk{Header: &wire.SnapshotHeader{State: make([]byte, size)}},
		},
	}
}

func answer(version uint64) *wire.PeerResponse {
	return &wire.PeerResponse{
		Body: &wire.PeerResponse_Honour{Honour: &wire.Honoured{Version: version}},
	}
}

func self(node, incarnation uint64) peer.Self {
	return peer.Self{ClusterID: "c", NodeID: node, Incarnation: incarnation}
}

// bubble runs fn in a bubble with a network, and closes the peers created by fn.
func bubble(t *testing.T, fn func(t *testing.T, n *memlink.Network,
	add func(peer.Self, *handler, peer.Config) *peer.Peers)) {
	synctest.Test(t, func(t *testing.T) {
		n := memlink.NewNetwork()
		var all []*peer.Peers
		fn(t, n, func(s peer.Self, h *handler, cfg peer.Config) *peer.Peers {
			p := peer.New(n.Link(s.NodeID), s, h, cfg)
			all = append(all, p)
			return p
		})
		for _, p := range all {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
	})
}

type add = func(peer.Self, *handler, peer.Config) *peer.Peers

// A thousand concurrent requests each receive their own answer. The number that shares a batch
// depends on the link's pace, see TestWhatWaitsGoesTogether.
func TestCalls(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memlink.Network, add add) {
		a := add(self(1, 1), &handler{}, peer.Config{})
		add(self(2, 1), &handler{}, peer.Config{})
		const count = 1000
		var wg sync.WaitGroup
		for i := range uint64(count) {
			wg.Go(func() {
				r, err := a.Call(context.Background(), 2, ask(i))
				if err != nil || r.GetHonour().GetVersion() != i {
					t.Errorf("%d: %v, %v", i, r, err)
				}
			})
		}
		wg.Wait()
		st := a.Stats()
		if st.Requests != count || st.Answers != count || st.Messages != count {
			t.Errorf("%+v", st)
		}
	})
}

// A batch is bounded by BatchMessages and BatchBytes, and may exceed BatchBytes by one message.
func TestBatchBounds(t *testing.T) {
	bubble(t, func(t *testing.T, n *memlink.Network, add add) {
		n.Filter = func(_, _ uint64, b *wire.PeerBatch) []time.Duration {
			if got := len(b.Requests) + len(b.Raft); got > 10 {
				t.Errorf("%d messages in a batch", got)
			}
			bytes := 0
			for _, r := range b.Requests {
				bytes += len(r.GetSnapshot().GetHeader().GetState())
			}
			if bytes > 1<<20 && len(b.Requests) > 1 {
				t.Errorf("%d bytes in %d requests", bytes, len(b.Requests))
			}
			return []time.Duration{0}
		}
		a := add(self(1, 1), &handler{}, peer.Config{BatchMessages: 10, BatchBytes: 1 << 20})
		add(self(2, 1), &handler{}, peer.Config{})
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				size := 300 << 10
				if i == 20 {
					size = 3 << 20
				}
				if _, err := a.Call(context.Background(), 2, large(size)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if st := a.Stats(); st.Batches < 14 || st.Messages != 40 {
			t.Errorf("%+v", st)
		}
	})
}

// A request over a bound fails at once, surely not sent; earlier ones are unaffected.
func TestInFlightIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, n *memlink.Network, add add) {
		var replies []func(*wire.PeerResponse)
		a := add(self(1, 1), &handler{}, peer.Config{InFlight: 3, InFlightBytes: 1 << 20})
		add(self(2, 1), &handler{fn: func(_ uint64, _ time.Time, _ *wire.PeerRequest,
			reply func(*wire.PeerResponse)) {
			replies = append(replies, reply)
		}}, peer.Config{})
		answers := 0
		tell := func(req *wire.PeerRequest) (failed error) {
			a.Tell(2, time.Time{}, req, func(_ *wire.PeerResponse, err error) {
				failed = err
				if err == nil {
					answers++
				}
			})
			return failed
		}
		for range 2 {
			if err := tell(ask(1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tell(large(2 << 20)); !errors.Is(err, txn.ErrNotSent) ||
			!errors.Is(err, txn.ErrOverloaded) {
			t.Errorf("more bytes than allowed: %v", err)
		}
		if err := tell(ask(1)); err != nil {
			t.Fatal(err)
		}
		if err := tell(ask(1)); !errors.Is(err, txn.ErrNotSent) ||
			!errors.Is(err, txn.ErrOverloaded) {
			t.Errorf("more requests than allowed: %v", err)
		}
		if err := tell(large(peer.MaxMessage)); !errors.Is(err, txn.ErrNotSent) ||
			!errors.Is(err, txn.ErrTooLarge) {
			t.Errorf("more than a message may hold: %v", err)
		}
		synctest.Wait()
		for _, reply := range replies {
			reply(answer(1))
			reply(answer(1)) // a second answer is ignored
		}
		synctest.Wait()
		if answers != 3 || a.Stats().Late != 0 {
			t.Errorf("%d answers, %+v", answers, a.Stats())
		}
		if err := tell(ask(1)); err != nil {
			t.Errorf("there is space again: %v", err)
		}
	})
}

// A node at its limit of concurrent requests refuses more, and a handler that never answers frees
// its place.
func TestIncomingIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memlink.Network, add add) {
		a := add(self(1, 1), &handler{}, peer.Config{})
		b := add(self(2, 1), &handler{
			fn: func(uint64, time.Time, *wire.PeerRequest, func(*wire.PeerResponse)) {},
		}, peer.Config{Incoming: 2})
		var mu sync.Mutex
		codes := map[pb.Error_Code]int{}
		for range 3 {
			a.Tell(2, time.Now().Add(time.Second), ask(1), func(r *wire.PeerResponse, _ error) {
				mu.Lock()
				defer mu.Unlock()
				codes[r.GetError().GetCode()]++
			})
		}
		synctest.Wait()
		mu.Lock()
		if codes[pb.Error_CODE_OVERLOADED] != 1 || len(codes) != 1 || b.Stats().Refused != 1 {
			t.Errorf("%v, %+v", codes, b.Stats())
		}
		mu.Unlock()
		wait(3 * time.Second) // both are past their deadlines
		a.Tell(2, time.Now().Add(time.Second), ask(1), func(*wire.PeerResponse, error) {})
		synctest.Wait()
		if b.Stats().Handled != 3 {
			t.Errorf("no space was released: %+v", b.Stats())
		}
	})
}

// Deadlines end requests at the caller, and are sent as the remaining time.
func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T, n *memlink.Network, add add) {
		var left atomic.Int64
		a := add(self(1, 1), &handler{}, peer.Config{})
		add(self(2, 1), &handler{fn: func(_ uint64, deadline time.Time, _ *wire.PeerRequest,
			reply func(*wire.PeerResponse)) {
			left.Store(int64(time.Until(deadline)))
			time.AfterFunc(3*time.Second, func() { reply(answer(1)) })
		}}, peer.Config{})
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := a.Call(ctx, 2, ask(1))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, txn.ErrNotSent) ||
			time.Since(begin) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if left := time.Duration(left.Load()); left != 2*time.Second {
			t.Errorf("the handler's deadline is %v ahead, want 2s", left)
		}
		wait(2 * time.Second)
		if st := a.Stats(); st.Late != 1 || st.Answers != 0 {
			t.Errorf("%+v", st)
		}
		canceled, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := a.Call(canceled, 2, ask(1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Requests left unanswered by a node's death fail at once, on gossip's report or on the next
// incarnation's first message.
func TestDeath(t *testing.T) {
	for _, how := range []string{"told", "seen"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *memlink.Network, add add) {
				a := add(self(1, 1), &handler{}, peer.Config{})
				silent := &handler{
					fn: func(uint64, time.Time, *wire.PeerRequest, func(*wire.PeerResponse)) {},
				}
				b := add(self(2, 1), silent, peer.Config{})
				// a knows incarnation 1
				if _, err := b.Call(context.Background(), 1, ask(1)); err != nil {
					t.Fatal(err)
				}
				var got error
				a.Tell(2, time.Time{}, ask(1), func(_ *wire.PeerResponse, err error) { got = err })
				a.Down(2, 0)
				synctest.Wait()
				if got != nil {
					t.Fatalf("another incarnation's end: %v", got)
				}
				begin := time.Now()
				// again: gossip reports a member whenever its state changes
				a.Down(2, 0)
				if how == "told" {
					a.Down(2, 1)
				} else {
					if err := b.Close(); err != nil {
						t.Error(err)
					}
					b = add(self(2, 2), &handler{}, peer.Config{})
					if _, err := b.Call(context.Background(), 1, ask(1)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if !errors.Is(got, peer.ErrLost) || errors.Is(got, txn.ErrNotSent) ||
					time.Since(begin) != 0 {
					t.Errorf("after %v: %v", time.Since(begin), got)
				}
			})
		})
	}
}

// An unreachable node is distinguished from a silent one: nothing was sent.
func TestUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memlink.Network, add add) {
		a := add(self(1, 1), &handler{}, peer.Config{})
		for _, node := range []uint64{0, 1, 7} {
			_, err := a.Call(context.Background(), node, ask(1))
			if !errors.Is(err, txn.ErrNotSent) {
				t.Errorf("node %d: %v", node, err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Call(context.Background(), 7, ask(1)); !errors.Is(err, txn.ErrNotSent) ||
			!errors.Is(err, txn.ErrClosed) {
			t.Error(err)
		}
	})
}

// Batches of another cluster, for another node, and of an ended incarnation are dropped.
func TestForeignBatches(t *testing.T) {
	bubble(t, func(t *testing.T, n *memlink.Network, add add) {
		h := &handler{}
		a := add(self(1, 1), h, peer.Config{})
		raw := n.Link(2)
		raw.Receive(func(*wire.PeerBatch) {})
		send := func(cluster string, to, from, incarnation uint64) {
			t.Helper()
			m := &wire.RaftMessage{TabletId: incarnation, FromNode: from, ToNode: to}
			b := &wire.PeerBatch{
				ClusterId: cluster, FromNode: from, FromIncarnation: incarnation, ToNode: to,
				Raft: []*wire.RaftMessage{m},
			}
			if err := raw.Send(1, b, func(error) {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send("c", 1, 2, 5)
		send("other", 1, 2, 6)
		send("c", 3, 2, 7)
		send("c", 1, 1, 8)
		send("c", 1, 0, 9)
		send("c", 1, 2, 4)
		if err := raw.Send(1, &wire.PeerBatch{ClusterId: "c", FromNode: 2, FromIncarnation: 5,
			ToNode: 1, Responses: make([]*wire.PeerResponse, 1001)}, func(error) {}); err != nil {
			t.Fatal(err)
		}
		send("c", 1, 2, 6)
		if got := fmt.Sprint(h.got()); got != "[5 6]" || a.Stats().Foreign != 6 {
			t.Errorf("%s, %+v", got, a.Stats())
		}
		if err := raw.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A panicking handler is answered with an error, and the node continues.
func TestHandlerPanics(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memlink.Network, add add) {
		a := add(self(1, 1), &handler{}, peer.Config{})
		b := add(self(2, 1), &handler{fn: func(_ uint64, _ time.Time, req *wire.PeerRequest,
			reply func(*wire.PeerResponse)) {
			if req.GetHonour().GetVersion() == 0 {
				panic("no version")
			}
			reply(answer(1))
		}}, peer.Config{})
		if r, err := a.Call(context.Background(), 2, ask(0)); err != nil ||
			r.GetError().GetCode() != pb.Error_CODE_INTERNAL {
			t.Errorf("%v, %v", r, err)
		}
		if r, err := a.Call(context.Background(), 2, ask(1)); err != nil || r.GetError() != nil {
			t.Errorf("%v, %v", r, err)
		}
		if b.Stats().Panics != 1 {
			t.Errorf("%+v", b.Stats())
		}
	})
}

// wait advances the bubble's clock.
func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestEarlierBuilds: once the cluster is at a version, batches of builds that do not support it are
// dropped; a process of such a build may have been paused since before.
func TestEarlierBuilds(t *testing.T) {
	bubble(t, func(t *testing.T, n *memlink.Network, add add) {
		h := &handler{}
		gate := version.NewGate(version.Range{Oldest: 2, Newest: 3}, 2,
			func(version.Number) error { return nil })
		a := add(self(1, 1), h, peer.Config{Gate: gate})
		raw := n.Link(2)
		versions := make(chan uint32, 1)
		raw.Receive(func(b *wire.PeerBatch) { versions <- b.Version })
		send := func(tablet uint64, v uint32) {
			t.Helper()
			if err := raw.Send(1, &wire.PeerBatch{
				ClusterId: "c", FromNode: 2, FromIncarnation: 5, ToNode: 1, Version: v,
				Raft: []*wire.RaftMessage{{TabletId: tablet, FromNode: 2, ToNode: 1}},
			}, func(error) {}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send(1, 0)
		if err := gate.Learn(version.Agreed{Minimum: 3, Active: 2}); err != nil {
			t.Fatal(err)
		}
		send(2, 0)
		send(3, 2)
		send(4, 3)
		send(5, 8)
		if got := fmt.Sprint(h.got()); got != "[1 4 5]" || a.Stats().Foreign != 2 {
			t.Errorf("EARLIER-BUILD-HEARD: %s, %+v", got, a.Stats())
		}
		a.Raft(&wire.RaftMessage{TabletId: 1, FromNode: 1, ToNode: 2})
		if v := <-versions; v != 3 {
			t.Errorf("this node reports version %d", v)
		}
		if err := raw.Close(); err != nil {
			t.Error(err)
		}
	})
}
