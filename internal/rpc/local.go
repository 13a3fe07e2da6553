package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// What other servers of the node share with Server: connections, the identification of callers, and a
// Transport that acts as a caller. They check what Server checks by the same code. Their goroutines call
// it; it has none.

// Listen limits the listener's connections as Serve does, but counts them apart from Serve's.
func (s *Server) Listen(lis net.Listener) net.Listener {
	limiter, cfg := newLimiter(s.service.cfg), s.service.cfg
	s.service.others.Store(limiter)
	return conns{limiter.Listen(lis), s.service.memory, cfg.Memory, cfg.Clients, s.service.counters}
}

// Admit identifies the caller of a request whose context has the peer (package peer of gRPC), and counts
// its connection, accepted by Listen, as used. The caller must call end at the end of the request. Errors
// are *txn.ServerError.
func (s *Server) Admit(ctx context.Context) (who Caller, end func(), err error) {
	if who, err = callerOf(ctx, &s.service.cfg); err != nil {
		return who, nil, &txn.ServerError{Code: pb.Error_CODE_PERMISSION, Message: status.Convert(err).Message()}
	}
	end, err = s.AdmitAs(ctx, who)
	return who, end, err
}

// AdmitAs counts the connection of a request as Admit does, for a caller that was identified by other means.
func (s *Server) AdmitAs(ctx context.Context, who Caller) (end func(), err error) {
	if c := connection(ctx); c != nil {
		if err := c.Admit(); err != nil {
			return nil, refusePlace(err)
		}
		c.caller.CompareAndSwap(nil, &who)
	}
	cfg := &s.service.cfg
	return cfg.LegacyCerts.call(who, cfg.Logger, time.Now), nil
}

// Recheck returns an error, and closes the connection, if the certificate of a caller that was admitted has been
// revoked since.
func (s *Server) Recheck(ctx context.Context, who Caller) error {
	return fromStatus(who.checkRevoked(ctx, &s.service.cfg))
}

// refusePlace returns the error of a connection for which no place is free.
func refusePlace(err error) *txn.ServerError {
	return &txn.ServerError{
		Code: pb.Error_CODE_OVERLOADED, Message: fmt.Sprintf("%v: ask another node", err),
		RetryAfter: placeRetry,
	}
}

// Identity is what two requests must share to act as one client. It is comparable.
type Identity struct{ name, role, by string }

// Identity returns the caller's: the role, and the name in its certificate or of its token. In
// plain text the name is the network of the remote host's address (connlimit.Network).
func (c *Caller) Identity() Identity {
	name := c.identity()
	if at, err := netip.ParseAddr(name); err == nil && c.By == ByNothing {
		name = connlimit.Network(at).String()
	}
	return Identity{name, string(c.Role), c.By}
}

// Account returns the name in the certificate or of the token. It is empty in plain text, where
// clients are not told apart.
func (i Identity) Account() string {
	if i.by == ByNothing {
		return ""
	}
	return i.name
}

// Local is a Transport of the server's process that acts as a caller: each call and operation needs the
// caller's role and grants, and counts against its rates and memory, as if it came from its own
// connection.
type Local struct {
	unaryCalls
	performer
}

var _ txn.Transport = (*Local)(nil)

// Local returns a Transport that acts as the caller. In addition it may use OutcomesTable.
func (s *Server) Local(who Caller) *Local {
	who.outcomes = true
	return &Local{
		unaryCalls: newUnaryCalls(localConn{s.service, who}),
		performer: performer{
			s: s.service, who: who, memory: newMemory(s.service.memory, s.service.cfg.Memory),
		},
	}
}

// Send implements txn.Transport.
func (l *Local) Send(ctx context.Context, _ *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	// Copy a scan, because the checks may lower its limit of bytes.
	if scan := req.GetScan(); scan != nil {
		req = &pb.TabletRequest{
			TabletId: req.TabletId, Epoch: req.Epoch, DeadlineMs: req.DeadlineMs, Trace: req.Trace,
			Op: &pb.TabletRequest_Scan{Scan: proto.CloneOf(scan)},
		}
	}
	t := l.task(req)
	if err := l.memory.take(ctx, t.held); err != nil {
		return nil, txn.Errorf("%w: %w", txn.ErrNotSent, err)
	}
	defer func() { l.memory.give(t.held) }()
	counts := &use{} // discarded: background work has no connection
	if c := connection(ctx); c != nil {
		counts = &c.use
	}
	resp, _ := l.execute(ctx, &t, counts)
	return resp, nil
}

// Timestamps implements txn.Transport.
func (l *Local) Timestamps(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	resp, err := l.rpc.Timestamps(ctx, &pb.TimestampsRequest{
		Count: uint32(min(count, maxTimestamps)), Trace: tracing.Sent(ctx),
	})
	return mvcc.Timestamp(resp.GetFirst()), int(resp.GetCount()), err
}

// AdminConn implements txn.Transport.
func (l *Local) AdminConn() grpc.ClientConnInterface { return localConn{l.s, l.who} }

// Close implements txn.Transport.
func (l *Local) Close() error { return nil }

// localConn makes unary calls of a caller to the services for clients, in process. Messages are copied.
type localConn struct {
	s   *service
	who Caller
}

// Invoke implements grpc.ClientConnInterface. Errors are those of the node's Transport.
func (c localConn) Invoke(ctx context.Context, method string, req, resp any, _ ...grpc.CallOption) error {
	if connection(ctx) == nil { // background work
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: remoteAddr(c.who.From)})
	}
	decode := func(into any) error {
		proto.Merge(into.(proto.Message), req.(proto.Message))
		return nil
	}
	// check refuses calls as authInterceptor does, and turns a panic into an error as it does, too.
	// It converts no error to a status, as statusUnary would: the caller is in this process.
	check := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
		defer recovered(c.s.cfg.Logger, method, &err)
		return c.s.guard.Call(ctx, c.who, method, req, func() (any, error) { return handler(ctx, req) })
	}
	for service, impl := range map[*grpc.ServiceDesc]any{
		&pb.Percolator_ServiceDesc: c.s, &pb.Admin_ServiceDesc: c.s.cfg.Admin,
	} {
		for _, m := range service.Methods {
			if "/"+service.ServiceName+"/"+m.MethodName != method {
				continue
			}
			out, err := m.Handler(impl, ctx, decode, check)
			if _, ok := status.FromError(err); ok { // nil, or of a handler that returns statuses
				err = fromStatus(err)
			}
			if err == nil {
				proto.Merge(resp.(proto.Message), out.(proto.Message))
			}
			return err
		}
	}
	return status.Errorf(codes.Unimplemented, "there is no method %s", method)
}

// NewStream implements grpc.ClientConnInterface. It returns an error: all calls are unary.
func (localConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

// remoteAddr is a remote address by its text.
type remoteAddr string

// Network implements net.Addr.
func (remoteAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (a remoteAddr) String() string { return cmp.Or(string(a), "unknown") }
