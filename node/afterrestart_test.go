package node_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/rpc"
)

// TestNothingFromTheFutureAfterRestart: a node that has just started refuses timestamps that its
// oracle has not granted, although it has granted none yet.
func TestNothingFromTheFutureAfterRestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := open(t, dir, nil)
	dial(t, n)
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir, nil)
	c, err := rpc.Dial(ctx, []string{n.Addr()}, rpc.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	far := uint64(mvcc.TimestampAt(time.Now().Add(24 * time.Hour).UnixMilli()))
	req := &pb.TabletRequest{
		TabletId: 2, Op: &pb.TabletRequest_Notify{
			Notify: &pb.NotifyRequest{
				Ts: far, Replay: true, Cells: []*pb.Cell{
					{Table: uint32(mvcc.FirstUserTable), Row: []byte("a"), Column: []byte("c")},
				},
			},
		},
	}
	r, err := c.Send(ctx, &pb.TabletDescriptor{TabletId: 2}, req)
	if err != nil || r.GetError().GetCode() != pb.Error_CODE_FUTURE {
		t.Fatalf("answered %v, %v", r, err)
	}
}
