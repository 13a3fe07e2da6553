package remoting

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// contextStream is a stream of which only the context is used.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextStream) Context() context.Context { return s.ctx }

// A panic below the guard ends the stream that it happened on, and no other. A stream
// that has come too early ends with its sender's patience.
func TestGuardedStreams(t *testing.T) {
	receives := make(chan struct{})
	g := &guard{
		counts: &counts{}, depth: newDepth(), receives: receives,
		logger: slog.New(slog.DiscardHandler),
	}
	begin := func(ctx context.Context, handler func()) error {
		info := &grpc.StreamServerInfo{FullMethod: remote.Remoting_Receive_FullMethodName}
		return g.stream(nil, contextStream{ctx: ctx}, info, func(any, grpc.ServerStream) error {
			handler()
			return nil
		})
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if err := begin(ended, func() {
		t.Error("the library got a stream before batches can be taken")
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream that came too early: %v", err)
	}
	close(receives)
	if err := begin(context.Background(), func() {
		panic("the library's")
	}); status.Code(err) != codes.Internal {
		t.Errorf("a stream on which the library panics: %v", err)
	}
	if err := begin(context.Background(), func() {}); err != nil {
		t.Errorf("the next stream: %v", err)
	}
	if n := g.counts.panics.Load(); n != 1 {
		t.Errorf("%d panics were counted", n)
	}
}
