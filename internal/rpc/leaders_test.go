package rpc

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// twoNodes is a node that forwards and the leader whose address it returns, with a client of the
// first. dials counts the client's connections to the leader.
type twoNodes struct {
	front, leader *served
	client        *Client
	dials         atomic.Int32
	named         atomic.Value // string: the leader's address in the front's answers
}

func startTwo(t *testing.T) *twoNodes {
	n := &twoNodes{leader: serve(t, ServerConfig{})}
	n.named.Store("127.0.0.1:7800")
	n.front = serve(t, ServerConfig{LeaderOf: func(uint64) string { return n.named.Load().(string) }})
	pipe := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return n.front.lis.DialContext(ctx)
	})
	var err error
	n.client, err = dial(n.front.ctx, []string{"passthrough:///front"}, ClientConfig{Insecure: true},
		[]grpc.DialOption{pipe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.client.Close() })
	n.client.leaders.net = func(ctx context.Context, _ string) (net.Conn, error) {
		n.dials.Add(1)
		return n.leader.lis.DialContext(ctx)
	}
	return n
}

func (n *twoNodes) send() (*pb.TabletResponse, error) {
	return n.client.Send(n.front.ctx, nil, &pb.TabletRequest{
		TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
	})
}

// connect sends operations until they go to the leader.
func (n *twoNodes) connect(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for n.client.leaders.link(2) == nil {
		if _, err := n.send(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no direct connection")
		}
	}
}

// operations returns the number of operations that the server has answered.
func (s *served) operations() (n uint64) {
	for _, took := range s.server.Stats().Operations {
		n += took.Count()
	}
	return n
}

// TestDirect: once an answer has named the leader, operations and requests for timestamps go
// directly to it; after a lost connection the next ones go through the front again, without an
// error.
func TestDirect(t *testing.T) {
	n := startTwo(t)
	n.connect(t)
	front, leader := n.front.operations(), n.leader.operations()
	for range 10 {
		if _, err := n.send(); err != nil {
			t.Fatal(err)
		}
	}
	if n.front.operations() != front || n.leader.operations() != leader+10 {
		t.Errorf("the front answered %d operations, the leader %d", n.front.operations()-front,
			n.leader.operations()-leader)
	}
	if _, _, err := n.client.Timestamps(n.front.ctx, 1); err != nil {
		t.Fatal(err)
	}
	asked := atomic.Int32{}
	n.leader.process.Oracle(func(int) (mvcc.Timestamp, int, error) { asked.Add(1); return 1, 1, nil })
	for range 10 {
		if _, _, err := n.client.Timestamps(n.front.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if asked.Load() == 0 {
		t.Error("no timestamps came from the leader")
	}
	_ = n.leader.lis.Close()
	n.leader.server.Stop()
	for range 10 {
		if _, err := n.send(); err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	if n.client.leaders.link(2) != nil || n.front.operations() == front {
		t.Error("operations still go to the node that has stopped")
	}
}

// TestDirectSilent: a leader that keeps its connection but does not answer is abandoned after
// answerWithin, and its operation may have been done.
func TestDirectSilent(t *testing.T) {
	n := startTwo(t)
	n.connect(t)
	n.client.answerWithin = 50 * time.Millisecond
	n.leader.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Before: func(ctx context.Context) { <-ctx.Done() }}
	})
	if _, err := n.send(); !errors.Is(err, errBroken) || errors.Is(err, txn.ErrNotSent) {
		t.Errorf("no answer: %v", err)
	}
	n.client.answerWithin = time.Minute
	for range 3 {
		if _, err := n.send(); err != nil || n.client.leaders.link(2) != nil {
			t.Errorf("the silent leader was not left: %v", err)
		}
	}
}

// TestDirectUnreachable: a leader without a quorum is abandoned for the tablet, without a second
// connection.
func TestDirectUnreachable(t *testing.T) {
	n := startTwo(t)
	n.connect(t)
	n.leader.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_UNAVAILABLE}}
	})
	if r, err := n.send(); err != nil || r.GetError().GetCode() != pb.Error_CODE_UNAVAILABLE {
		t.Fatalf("%v, %v", r, err)
	}
	if n.client.leaders.link(2) != nil {
		t.Error("the leader was not left")
	}
	if r, err := n.send(); err != nil || r.Error != nil || n.client.leaders.link(2) == nil {
		t.Errorf("the front names it again: %v, %v", r, err)
	}
	if n.dials.Load() != 1 {
		t.Errorf("%d connections", n.dials.Load())
	}
}

// TestDirectForeign: an address of another cluster's node, or an invalid one, is never used.
func TestDirectForeign(t *testing.T) {
	n := startTwo(t)
	n.client.leaders.cluster = "another"
	for _, named := range []string{"127.0.0.1:7800", "no address", "127.0.0.1:7801"} {
		n.named.Store(named)
		for range 50 {
			if r, err := n.send(); err != nil || r.Error != nil {
				t.Fatalf("%v, %v", r, err)
			}
		}
	}
	refused := make(chan struct{})
	go func() {
		n.client.leaders.running.Wait()
		close(refused)
	}()
	select {
	case <-refused:
	case <-time.After(10 * time.Second): // one has not ended, so it is in use: a refused one ends at once
		t.Error("FOREIGN: a connection to another cluster is used")
	}
	if n.leader.operations() != 0 || n.dials.Load() != 2 {
		t.Errorf("FOREIGN: %d operations went to another cluster; %d connections", n.leader.operations(), n.dials.Load())
	}
}

// TestDirectNotRestored: gRPC cannot restore a lost direct connection, whose address another
// cluster's node may have by then; the options of the connection allow a single dial.
func TestDirectNotRestored(t *testing.T) {
	n := startTwo(t)
	real, options := n.client.leaders.dial, make(chan []grpc.DialOption, 1)
	n.client.leaders.dial = func(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		options <- opts
		return real(addr, opts...)
	}
	n.connect(t)
	again, err := real("127.0.0.1:7800", <-options...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	ctx, cancel := context.WithTimeout(n.front.ctx, 10*time.Second)
	defer cancel()
	_, err = pb.NewPercolatorClient(again).NodeStatus(ctx, &pb.NodeStatusRequest{})
	if err == nil || n.dials.Load() != 1 {
		t.Errorf("RESTORED: a direct connection was dialed %d times; %v", n.dials.Load(), err)
	}
}
