package rpc

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// bare connects to the server as no client of ours does.
func (s *served) bare() pb.PercolatorClient {
	s.t.Helper()
	pipe := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.lis.DialContext(ctx) })
	conn, err := grpc.NewClient("passthrough:pipe", grpc.WithTransportCredentials(insecure.NewCredentials()), pipe)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewPercolatorClient(conn)
}

// whole waits until nothing is held of the server's budget.
func (s *served) whole() {
	s.t.Helper()
	for name, b := range map[string]*budget{"answers": s.server.service.budget, "requests": s.server.service.requests} {
		for p, part := range b.parts {
			size := b.own[p] * shareOf
			if err := part.Acquire(s.ctx, size); err != nil {
				s.t.Errorf("part %d of %d bytes for %s is not given back: %v", p, size, name, err)
				continue
			}
			part.Release(size)
		}
	}
}

// Over gRPC: streams that read nothing fill the budget and are ended with their
// connection once others have waited; the others are served, and all memory is given
// back.
func TestStreamsThatNeverRead(t *testing.T) {
	s := serve(t, ServerConfig{AnswerMemory: leastAnswerMemory, AnswerPatience: 200 * time.Millisecond})
	c := s.client()
	s.set(c, make([]byte, 4<<20), "a")
	snap, err := c.Snapshot(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	table, err := c.TableID(s.ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	rude := s.bare()
	var streams []grpc.BidiStreamingClient[pb.OperationBatch, pb.OperationResults]
	for range maxOperationStreams {
		stream, err := rude.Operations(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		batch := &pb.OperationBatch{}
		for i := range uint64(50) {
			batch.Operations = append(batch.Operations, &pb.Operation{Id: i, Request: &pb.TabletRequest{
				TabletId: 2, Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: uint64(snap.Timestamp()), Cells: []*pb.Cell{
					{Table: uint32(table), Row: wire.Bytes("a"), Column: wire.Bytes("c")},
				}}},
			}})
		}
		if err := stream.Send(batch); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 4 {
				values, err := snap.GetMulti(s.ctx, []txn.Key{key("a")})
				if err != nil || len(values[0].Bytes) != 4<<20 {
					t.Errorf("a client that reads: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, stream := range streams {
		for err = nil; err == nil; {
			_, err = stream.Recv()
		}
		if c := status.Code(err); c != codes.ResourceExhausted && c != codes.Unavailable {
			t.Errorf("a stream that never read: %v", err)
		}
	}
	s.whole()
}

// A connection carries a bounded number of streams.
func TestStreamsOfAConnection(t *testing.T) {
	s := serve(t, ServerConfig{})
	client := s.bare()
	refused := make(chan error)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range maxOperationStreams + 1 {
		stream, err := client.Operations(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			_, err := stream.Recv()
			refused <- err
		})
	}
	if err := <-refused; status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	cancel()
	for range maxOperationStreams {
		if err := <-refused; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	wg.Wait()
}

// Many clients that read, with more of the largest reads at once than there is room for:
// all are answered.
func TestNoStandstill(t *testing.T) {
	s := serve(t, ServerConfig{AnswerMemory: leastAnswerMemory})
	writer := s.client()
	s.set(writer, make([]byte, 3<<20), "a", "h")
	s.set(writer, make([]byte, 100<<10), "b")
	s.set(writer, make([]byte, 10), "z")
	var wg sync.WaitGroup
	for range 4 {
		c := s.client()
		snap, err := c.Snapshot(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			wg.Go(func() {
				for range 2 {
					values, err := snap.GetMulti(s.ctx, []txn.Key{key("z"), key("a"), key("b"), key("h")})
					if err != nil {
						t.Error(err)
						return
					}
					if len(values[0].Bytes) != 10 || len(values[1].Bytes) != 3<<20 || len(values[2].Bytes) != 100<<10 || len(values[3].Bytes) != 3<<20 {
						t.Error("values are cut")
					}
				}
			})
		}
	}
	wg.Wait()
	s.whole()
}
