package rpc

import (
	"context"
	"net"
	"testing"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// brokenStream is a client's stream that panics when it is read, or written to.
type brokenStream struct {
	grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx  context.Context
	recv func() (*pb.OperationBatch, error)
}

func (s *brokenStream) Context() context.Context          { return s.ctx }
func (s *brokenStream) Recv() (*pb.OperationBatch, error) { return s.recv() }
func (s *brokenStream) Send(*pb.OperationResults) error   { panic("no answers") }

// TestStreamPanics: a panic of a stream's reader or writer ends the stream with an error, like a
// panic of a unary handler, and not the process; it leaves none of the server's memory taken.
func TestStreamPanics(t *testing.T) {
	const size = 256 << 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := false
	for name, recv := range map[string]func() (*pb.OperationBatch, error){
		"reader": func() (*pb.OperationBatch, error) { panic("no operations") },
		"writer": func() (*pb.OperationBatch, error) {
			if sent {
				<-ctx.Done() // a client that waits for its answer
				return nil, ctx.Err()
			}
			sent = true
			return &pb.OperationBatch{Operations: []*pb.Operation{{Id: 1, Request: read(1)}}}, nil
		},
	} {
		all := semaphore.NewWeighted(size)
		server := NewServer(txntest.New().Process(1, 1), ServerConfig{Memory: size})
		server.service.memory = all
		c := &clientConn{memory: newMemory(all, size)}
		known := peer.NewContext(ctx, &peer.Peer{Addr: clientAddr{&net.TCPAddr{}, c}})
		err := server.service.Operations(&brokenStream{ctx: known, recv: recv})
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if !all.TryAcquire(size) {
			t.Errorf("%s: the memory of an operation was not released", name)
		}
		server.Stop()
	}
}
