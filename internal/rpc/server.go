package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Server serves a Transport to remote clients. gRPC runs each call and each stream on a
// goroutine; Server itself only keeps what Shutdown needs to end them. Stop and Shutdown
// may be called from any goroutine, also at once.
type Server struct {
	grpc    *grpc.Server
	service *service
	drain   sync.Once
}

// NewServer returns a server over the transport, which stays the caller's.
func NewServer(transport txn.Transport, cfg ServerConfig) *Server {
	cfg = cfg.withDefaults()
	// gRPC's defaults are for other uses: 4 MiB per message would refuse the largest
	// values, and 64 KiB of window would let a batch wait for several round trips.
	guard := NewGuard(cfg.Logger, cfg.Policy, transport)
	opts := append(guarded(cfg, guard),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connectionWindow),
		grpc.ChainUnaryInterceptor(statusUnary),
	)
	s := &Server{
		grpc: grpc.NewServer(opts...),
		service: &service{
			transport: transport, cfg: cfg, tables: newTableIDs(transport),
			grants: guard.grants, counters: &serverCounters{}, draining: make(chan struct{}),
			memory: semaphore.NewWeighted(cfg.Memory), limiter: newLimiter(cfg),
		},
	}
	pb.RegisterPercolatorServer(s.grpc, s.service)
	pb.RegisterAdminServer(s.grpc, cfg.Admin)
	// Services for nodes share the listener and its guards.
	if cfg.Register != nil {
		cfg.Register(s.grpc)
	}
	return s
}

// Guards are what every server on a node's address for clients has in front of its
// handlers: they recover from panics, calls take a certificate of the role that they
// need, connections that take part in Limit get a place with their first call, streams are bounded,
// and connections that are silent end. Of cfg they take TLS, Revoked, MaxStreams and Logger.
func Guards(cfg ServerConfig) []grpc.ServerOption {
	cfg = cfg.withDefaults()
	return guarded(cfg, NewGuard(cfg.Logger, nil, nil))
}

// guarded is Guards with a guard that knows of grants.
func guarded(cfg ServerConfig, guard *Guard) []grpc.ServerOption {
	e := &authInterceptor{cfg: cfg, guard: guard}
	opts := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(cfg.MaxStreams), grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: cfg.keepalive, Timeout: cfg.keepaliveAnswer, MaxConnectionIdle: cfg.MaxIdle,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveTime / 2, PermitWithoutStream: true,
		}),
		grpc.ChainUnaryInterceptor(recoverUnary(cfg.Logger), e.unary),
		grpc.ChainStreamInterceptor(recoverStream(cfg.Logger), e.stream),
		grpc.WaitForHandlers(true), grpc.InTapHandle(e.admit),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	return opts
}

// Serve answers on the listener until Stop or Shutdown; it then returns nil. It may be
// called for several listeners.
func (s *Server) Serve(lis net.Listener) error {
	cfg := s.service.cfg
	limited := conns{
		s.service.limiter.Listen(lis), s.service.memory, cfg.Memory, cfg.Clients, s.service.counters,
	}
	if err := s.grpc.Serve(limited); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil // stopped before it began
}

// Shutdown takes no more work, lets what is under way finish, and cuts off what is left
// when ctx ends. It returns when no handler runs any more.
func (s *Server) Shutdown(ctx context.Context) {
	// Operations streams end by themselves only when they are told to: GracefulStop would
	// wait for them for ever.
	s.drain.Do(func() { close(s.service.draining) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	// Stop makes GracefulStop return, too.
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// Stop cuts everything off and waits for the handlers.
func (s *Server) Stop() { s.grpc.Stop() }

// recovered, deferred, turns a panic of a handler into an error: one bad request must not
// end the process.
func recovered(logger *slog.Logger, where string, err *error) {
	if r := recover(); r != nil {
		logger.Error("handler panicked", "method", where, "panic", fmt.Sprint(r), "stack",
			string(debug.Stack()))
		*err = status.Error(codes.Internal, "percolator: internal error")
	}
}

// recoverUnary guards unary calls.
func recoverUnary(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (resp any, err error) {
		defer recovered(logger, info.FullMethod, &err)
		return handler(ctx, req)
	}
}

// recoverStream guards the goroutine of the handler; Operations guards those it starts.
func recoverStream(logger *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) (err error) {
		defer recovered(logger, info.FullMethod, &err)
		return handler(srv, stream)
	}
}

// service is pb.PercolatorServer over a Transport. Its errors become a status in
// statusUnary.
type service struct {
	pb.UnsafePercolatorServer
	transport txn.Transport
	cfg       ServerConfig
	tables    *tableIDs
	grants    *grants
	memory    *semaphore.Weighted // of operations and their answers, of all connections
	limiter   *connlimit.Limiter  // of all listeners
	counters  *serverCounters
	draining  chan struct{} // closed by Shutdown
}

// Timestamps asks the oracle.
func (s *service) Timestamps(ctx context.Context,
	req *pb.TimestampsRequest) (*pb.TimestampsResponse, error) {
	// One client must not use up the oracle's allocation; who needs more asks again.
	count := max(1, min(int(req.Count), maxTimestamps))
	first, n, err := s.transport.Timestamps(ctx, count)
	if err != nil {
		return nil, err
	}
	return &pb.TimestampsResponse{First: uint64(first), Count: uint32(n)}, nil
}

// Locate reads the tablet map.
func (s *service) Locate(ctx context.Context, req *pb.LocateRequest) (*pb.LocateResponse, error) {
	limit := max(1, min(int(req.Limit), maxLocate))
	found, err := s.transport.Locate(ctx, mvcc.TableID(req.Table), wire.String(req.Row), limit)
	return &pb.LocateResponse{Tablets: found}, err
}

// CreateTable creates a table or adds split keys to it.
func (s *service) CreateTable(ctx context.Context,
	req *pb.CreateTableRequest) (*pb.CreateTableResponse, error) {
	t, err := s.transport.CreateTable(ctx, req)
	// A client of an earlier build takes an answer for the end.
	for err == nil && !req.Stepwise && wire.PendingSplits(t, req) > 0 {
		t, err = s.transport.CreateTable(ctx, req)
	}
	if err == nil {
		s.tables.learn(t.GetId()) // its first operations follow
	}
	return &pb.CreateTableResponse{Table: t}, err
}

// DropTable drops a table.
func (s *service) DropTable(ctx context.Context,
	req *pb.DropTableRequest) (*pb.DropTableResponse, error) {
	return &pb.DropTableResponse{}, s.transport.DropTable(ctx, req.Name, mvcc.TableID(req.Id))
}

// Tables lists the tables.
func (s *service) Tables(ctx context.Context, _ *pb.TablesRequest) (*pb.TablesResponse, error) {
	tables, err := s.transport.Tables(ctx)
	return &pb.TablesResponse{Tables: tables}, err
}

// GetCatalogue reads the catalogue of observed columns.
func (s *service) GetCatalogue(ctx context.Context, _ *pb.CatalogueRequest) (*pb.Catalogue, error) {
	return s.transport.Catalogue(ctx)
}

// WorkerDead reports positive knowledge only.
func (s *service) WorkerDead(ctx context.Context,
	req *pb.WorkerDeadRequest) (*pb.WorkerDeadResponse, error) {
	return &pb.WorkerDeadResponse{Dead: s.transport.WorkerDead(ctx, wire.Worker(req.Worker))}, nil
}

// SplitTablet splits a tablet. The response is empty: the tablet map tells the rest.
func (s *service) SplitTablet(ctx context.Context,
	req *pb.SplitTabletRequest) (*pb.SplitResponse, error) {
	return &pb.SplitResponse{}, s.transport.SplitTablet(ctx, req.Table, wire.String(req.Row))
}

// NodeStatus describes the node.
func (s *service) NodeStatus(ctx context.Context,
	_ *pb.NodeStatusRequest) (*pb.NodeStatusResponse, error) {
	return s.transport.NodeStatus(ctx)
}

// Observers lists the catalogue's observers.
func (s *service) Observers(ctx context.Context,
	_ *pb.ObserversRequest) (*pb.ObserversResponse, error) {
	list, err := s.transport.Observers(ctx)
	return &pb.ObserversResponse{Observers: list}, err
}

// HoldHistory keeps history from being collected, for a while. The holder's name gets
// where the call comes from: leases are shared out by that.
func (s *service) HoldHistory(ctx context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	held := &pb.HoldHistoryRequest{Token: req.Token, Oldest: req.Oldest, TtlMs: req.TtlMs}
	// A request without a name stays one, and is refused where leases are kept.
	if req.Holder != "" {
		held.Holder = wire.WithOrigin(req.Holder, origin(ctx))
	}
	return s.transport.HoldHistory(ctx, held)
}
