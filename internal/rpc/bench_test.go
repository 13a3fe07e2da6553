package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// BenchmarkOperations measures small operations over loopback, answered at once: batching, gRPC and
// protobuf.
func BenchmarkOperations(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := NewServer(txntest.New().Process(1, 1), ServerConfig{})
			var wg sync.WaitGroup
			wg.Go(func() { _ = server.Serve(lis) })
			defer wg.Wait()
			defer server.Stop()
			c, err := Dial(context.Background(), []string{lis.Addr().String()},
				ClientConfig{Insecure: true})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			req := &pb.TabletRequest{
				TabletId: 99, Op: &pb.TabletRequest_Pending{Pending: &pb.PendingRequest{}},
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var callersDone sync.WaitGroup
			for range callers {
				callersDone.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := c.Send(context.Background(), nil, req); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callersDone.Wait()
		})
	}
}
