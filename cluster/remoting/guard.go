package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/percolator-go/percolator/internal/wire"
)

// This file checks everything that other nodes send before the library sees it. It trusts
// nobody, not even holders of certificates, because many messages would end the library's
// process. gRPC calls it on a goroutine for each stream, whose state is in its
// guardedStream. All that the guard keeps is counters.

// Bounds of what another node may send.
const (
	maxEnvelopes = 16       // in one message; this release sends one
	maxPayload   = 32 << 20 // bytes in one batch
	maxFields    = 1 << 10  // in one batch: up to 1,000 messages and the header fields
	maxText      = 1 << 10  // bytes in a name or address
	maxStreams   = 16       // in one connection; this release uses one
)

// guard refuses what the library would not survive or must not do.
type guard struct {
	counts   *counts
	depth    *depth
	receives <-chan struct{} // closed when batches can be received
	logger   *slog.Logger
}

// serverOptions returns the options of the gRPC server, with the guard in front of every
// handler.
func (l *Link) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(newServerCredentials(l.cfg.Files, l.limiter, &l.counts)),
		grpc.InTapHandle(l.admit),
		grpc.ChainUnaryInterceptor(l.guard.unary), grpc.ChainStreamInterceptor(l.guard.stream),
		grpc.MaxRecvMsgSize(maxReceive), grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.ConnectionTimeout(5 * time.Second), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveTime / 2, PermitWithoutStream: true,
		}),
	}
}

// unary refuses every call: nodes use only the stream.
func (g *guard) unary(ctx context.Context, _ any, info *grpc.UnaryServerInfo,
	_ grpc.UnaryHandler) (any, error) {
	return nil, g.refuse(ctx, codes.PermissionDenied, "call of %s", info.FullMethod)
}

// stream lets batches through to the library and survives its panics.
func (g *guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	if info.FullMethod != remote.Remoting_Receive_FullMethodName {
		return g.refuse(s.Context(), codes.PermissionDenied, "call of %s", info.FullMethod)
	}
	// The library registers an actor's name before its mailbox is ready. A batch at that
	// moment would panic and leave the mailbox marked as running, so that nothing would be
	// received ever again. And a batch that comes before Receive is called would be lost
	// although its sender counts it as on its way.
	select {
	case <-g.receives:
	case <-s.Context().Done(): // the sender tries again after connectTimeout
		return s.Context().Err()
	}
	defer func() {
		if r := recover(); r != nil {
			g.counts.panics.Add(1)
			g.logger.Error("a stream of another node panicked", "panic", fmt.Sprint(r), "stack",
				string(debug.Stack()))
			err = status.Error(codes.Internal, "remoting: internal error")
		}
	}()
	return handler(srv, &guardedStream{ServerStream: s, guard: g})
}

// refuse counts and logs a refusal and returns it as a status.
func (g *guard) refuse(ctx context.Context, code codes.Code, format string, args ...any) error {
	g.counts.refused.Add(1)
	text := fmt.Sprintf(format, args...)
	from := "unknown"
	if p, ok := grpcpeer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	g.logger.Warn("refused a message of another node", "from", from, "reason", text)
	return status.Error(code, "remoting: refused: "+text)
}

// guardedStream checks the messages that the library receives. Only the stream's goroutine
// uses it, except for SendMsg, which is the embedded stream's.
type guardedStream struct {
	grpc.ServerStream
	guard   *guard
	greeted bool
}

// RecvMsg implements grpc.ServerStream.
func (s *guardedStream) RecvMsg(m any) error {
	// While this node is behind, gRPC's window closes and the sender waits.
	if err := s.guard.depth.wait(s.Context()); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	message, ok := m.(*remote.RemoteMessage)
	if !ok {
		return s.guard.refuse(s.Context(), codes.Internal, "message of type %T", m)
	}
	if reason := s.check(message); reason != "" {
		return s.guard.refuse(s.Context(), codes.InvalidArgument, "%s", reason)
	}
	return nil
}

// check returns why the message is refused, or "".
func (s *guardedStream) check(m *remote.RemoteMessage) string {
	switch body := m.GetMessageType().(type) {
	case *remote.RemoteMessage_ConnectRequest:
		// It counts even if it is refused, which ends the stream.
		greeted := s.greeted
		s.greeted = true
		return checkConnect(body.ConnectRequest, greeted)
	case *remote.RemoteMessage_MessageBatch:
		// Every stream begins with a connect request.
		if !s.greeted {
			return "batch before the connect request"
		}
		return checkBatch(body.MessageBatch)
	}
	return fmt.Sprintf("message of kind %T", m.GetMessageType())
}

// checkConnect returns why a connect request is refused, or "". again is true if it is not
// the stream's first.
func checkConnect(r *remote.ConnectRequest, again bool) string {
	c, ok := r.GetConnectionType().(*remote.ConnectRequest_ServerConnection)
	switch {
	case again:
		return "second connect request"
	case !ok:
		return "connect request of a client"
	case len(c.ServerConnection.GetMemberId()) > maxText ||
		len(c.ServerConnection.GetAddress()) > maxText:
		return "connect request with a long name"
	case len(c.ServerConnection.GetBlockList()) > 0:
		return "connect request with a block list"
	}
	return ""
}

// batchType is the only type of message that passes.
var batchType = string((*wire.PeerBatch)(nil).ProtoReflect().Descriptor().FullName())

// checkBatch returns why a batch of the library is refused, or "". A batch must be as this
// release sends it: one type, one target, no sender, no header. Then every index that the
// library uses is in range.
func checkBatch(b *remote.MessageBatch) string {
	if n := len(b.GetEnvelopes()); n > maxEnvelopes {
		return fmt.Sprintf("%d envelopes", n)
	}
	if len(b.GetTypeNames()) > 1 || len(b.GetTargets()) > 1 || len(b.GetSenders()) > 0 {
		return fmt.Sprintf("%d types, %d targets and %d senders", len(b.GetTypeNames()),
			len(b.GetTargets()), len(b.GetSenders()))
	}
	for _, name := range b.GetTypeNames() {
		if name != batchType {
			return fmt.Sprintf("type %.64q", name)
		}
	}
	for _, name := range b.GetTargets() {
		if name != receiver {
			return fmt.Sprintf("target %.64q", name)
		}
	}
	for _, e := range b.GetEnvelopes() {
		switch {
		case e == nil:
			return "empty envelope"
		case e.GetTypeId() < 0 || int(e.GetTypeId()) >= len(b.GetTypeNames()):
			return fmt.Sprintf("type index %d of %d", e.GetTypeId(), len(b.GetTypeNames()))
		case e.GetTarget() < 0 || int(e.GetTarget()) >= len(b.GetTargets()):
			return fmt.Sprintf("target index %d of %d", e.GetTarget(), len(b.GetTargets()))
		case e.GetSender() != 0 || e.GetTargetRequestId() != 0 || e.GetSenderRequestId() != 0:
			return fmt.Sprintf("sender index %d", e.GetSender())
		case e.GetSerializerId() != 0:
			return fmt.Sprintf("serializer %d", e.GetSerializerId())
		case e.GetMessageHeader() != nil:
			return "message header"
		case len(e.GetMessageData()) > maxPayload:
			return fmt.Sprintf("batch of %d bytes", len(e.GetMessageData()))
		}
		if n := fields(e.GetMessageData()); n < 0 || n > maxFields {
			return fmt.Sprintf("batch of %d fields", n)
		}
	}
	return ""
}

// fields counts the top-level fields of an encoded message and stops above maxFields. It
// returns -1 if the text is not a message. A message of a few bytes can take a hundred in
// memory, so a batch of very many messages is refused before the library decodes it.
func fields(text []byte) int {
	n := 0
	for ; len(text) > 0 && n <= maxFields; n++ {
		_, _, size := protowire.ConsumeField(text)
		if size < 0 {
			return -1
		}
		text = text[size:]
	}
	return n
}
