package rpc

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestAnotherAddress: a node that keeps its connections but does not answer, or reaches no leader,
// is abandoned for the next address; operations sent to it may have been done.
func TestAnotherAddress(t *testing.T) {
	first, second := serve(t, ServerConfig{}), serve(t, ServerConfig{})
	pipe := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		if addr == "first" {
			return first.lis.DialContext(ctx)
		}
		return second.lis.DialContext(ctx)
	})
	c, err := dial(first.ctx, []string{"passthrough:///first", "passthrough:///second"},
		ClientConfig{Insecure: true}, []grpc.DialOption{pipe})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	send := func() (*pb.TabletResponse, error) {
		return c.Send(first.ctx, nil, &pb.TabletRequest{
			TabletId: 2, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
		})
	}
	if r, err := send(); err != nil || r.Error != nil || c.link() != c.links[0] {
		t.Fatalf("the first answers: %v, %v", r, err)
	}
	first.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Before: func(ctx context.Context) { <-ctx.Done() }}
	})
	c.answerWithin = 100 * time.Millisecond
	_, err = send()
	if !errors.Is(err, errBroken) || errors.Is(err, txn.ErrNotSent) ||
		errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	if c.link() != c.links[1] {
		t.Fatal("the silent node was not left")
	}
	c.answerWithin = time.Minute
	if r, err := send(); err != nil || r.Error != nil {
		t.Fatalf("the second answers: %v, %v", r, err)
	}
	second.process.Inject(func(*pb.TabletRequest) txntest.Fault {
		return txntest.Fault{Answer: &pb.Error{Code: pb.Error_CODE_UNAVAILABLE}}
	})
	if r, err := send(); err != nil || r.Error == nil || c.link() != c.links[0] {
		t.Errorf("the node that reaches nobody was not left: %v, %v", r, err)
	}
	// A node whose oracle reports that it does not lead is left too: another node's may lead.
	first.process.Oracle(func(int) (mvcc.Timestamp, int, error) {
		return 0, 0, &txn.ServerError{
			Code: pb.Error_CODE_UNAVAILABLE, Message: "meta is led by nobody",
		}
	})
	if _, _, err := c.Timestamps(first.ctx, 1); err == nil || c.link() != c.links[1] {
		t.Errorf("the node without an oracle was not left: %v", err)
	}
	if _, _, err := c.Timestamps(first.ctx, 1); err != nil {
		t.Errorf("the other's oracle: %v", err)
	}
}
