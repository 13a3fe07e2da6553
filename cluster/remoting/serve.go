package remoting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file receives the streams of other nodes, each on a goroutine of gRPC, and trusts
// nobody, not even holders of certificates. A stream hands over its batches itself, one after
// the other: while this node is behind it reads no further, gRPC's window closes, and the
// sender waits.

// maxStreams is the most streams in one connection; nodes use one.
const maxStreams = 16

// newServer returns the gRPC server for other nodes.
func (l *Link) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(newServerCredentials(l.cfg.Files, &l.counts)), grpc.InTapHandle(l.admit),
		grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(l.serveUnknown),
		grpc.MaxRecvMsgSize(maxFrame), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16<<10),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(5*time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveTime / 2, PermitWithoutStream: true,
		}),
	)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		Streams: []grpc.StreamDesc{{
			StreamName: streamName, Handler: l.serve, ServerStreams: true, ClientStreams: true,
		}},
	}, nil)
	return s
}

// serve receives one stream: a hello and then batches.
func (l *Link) serve(_ any, s grpc.ServerStream) (err error) {
	// A batch that arrives before Receive was called would be lost, although its sender
	// reports it as on its way.
	select {
	case <-l.receives:
	case <-s.Context().Done(): // the other node tries again after connectTimeout
		return s.Context().Err()
	}
	defer func() {
		if r := recover(); r != nil {
			l.counts.panics.Add(1)
			l.cfg.Logger.Error("a stream of another node panicked", "panic", fmt.Sprint(r), "stack",
				string(debug.Stack()))
			err = status.Error(codes.Internal, "remoting: internal error")
		}
	}()
	if _, err := l.next(s, checkHello); err != nil {
		return err
	}
	welcome, err := encode(welcomeFrame())
	if err != nil {
		return err
	}
	if err := s.SendMsg(welcome); err != nil {
		return err
	}
	for {
		frame, err := l.next(s, checkBatch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.take(frame.GetDelivery().GetEnvelope().GetBatch())
	}
}

// next receives the stream's next frame. One that fails the check ends the stream.
func (l *Link) next(s grpc.ServerStream, check func([]byte) error) (*wire.PeerFrame, error) {
	var buffer mem.Buffer
	if err := s.RecvMsg(&buffer); err != nil {
		return nil, err
	}
	defer buffer.Free()
	if err := check(buffer.ReadOnlyData()); err != nil {
		return nil, l.refuse(s.Context(), codes.InvalidArgument, err.Error())
	}
	frame, err := decode(buffer.ReadOnlyData())
	if err != nil {
		return nil, l.refuse(s.Context(), codes.InvalidArgument, err.Error())
	}
	return frame, nil
}

// take hands a batch over. The function set by Receive is called for one batch at a time.
func (l *Link) take(b *wire.PeerBatch) {
	l.counts.received.Add(1)
	l.mu.Lock()
	receive := l.receive
	// Down needs it, so that it does not end a connection to a later incarnation.
	if t := l.nodes[b.GetFromNode()]; t != nil {
		t.heard = max(t.heard, b.GetFromIncarnation())
	}
	l.mu.Unlock()
	l.receiving.Lock()
	defer l.receiving.Unlock()
	receive(b)
}

// serveUnknown refuses every call but the stream's.
func (l *Link) serveUnknown(_ any, s grpc.ServerStream) error {
	called, _ := grpc.MethodFromServerStream(s)
	return l.refuse(s.Context(), codes.PermissionDenied, fmt.Sprintf("call of %.64q", called))
}

// refuse counts and logs a refusal and returns it as a status.
func (l *Link) refuse(ctx context.Context, code codes.Code, reason string) error {
	l.counts.refused.Add(1)
	from := "unknown"
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	l.cfg.Logger.Warn("refused a message of another node", "from", from, "reason", reason)
	return status.Error(code, "remoting: refused: "+reason)
}
