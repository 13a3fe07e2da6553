package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/connlimit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Server serves a Transport to remote clients. gRPC runs each call and stream on its own
// goroutine; Server only keeps the state that Shutdown needs to end them. Stop and Shutdown
// may be called concurrently.
type Server struct {
	grpc    *grpc.Server
	service *service
	drain   sync.Once
}

// NewServer returns a server over the transport, which the caller still owns.
func NewServer(transport txn.Transport, cfg ServerConfig) *Server {
	cfg = cfg.withDefaults()
	// gRPC's defaults do not fit: 4 MiB per message would refuse the largest values, and with
	// a 64 KiB window a batch would need several round trips.
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
			guard: guard, grants: guard.grants, counters: &serverCounters{}, draining: make(chan struct{}),
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

// Guards returns the options of every server on a node's address for clients: they recover
// panics, require a certificate with the role of the call, count connections of Limit as used
// at their first call, limit streams, and close dead connections. They use TLS, Revoked,
// LegacyCerts, MaxStreams, MaxIdle and Logger of cfg.
func Guards(cfg ServerConfig) []grpc.ServerOption {
	cfg = cfg.withDefaults()
	return guarded(cfg, NewGuard(cfg.Logger, nil, nil))
}

// guarded returns the options of a server that authenticates callers, bounds their connections and
// streams, and enforces grants by guard.
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
		grpc.ChainUnaryInterceptor(e.unary), grpc.ChainStreamInterceptor(e.stream),
		grpc.WaitForHandlers(true), grpc.InTapHandle(e.admit),
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	return opts
}

// Serve serves the listener until Stop or Shutdown and then returns nil. It may be called for
// several listeners.
func (s *Server) Serve(lis net.Listener) error {
	cfg := s.service.cfg
	limited := conns{
		s.service.limiter.Listen(lis), s.service.memory, cfg.Memory, cfg.Clients, s.service.counters,
	}
	if err := s.grpc.Serve(limited); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil // stopped before Serve
}

// Shutdown stops accepting work, waits for running handlers, and cancels the rest when ctx
// ends. It returns when no handler is running.
func (s *Server) Shutdown(ctx context.Context) {
	// Operations streams end only on draining: otherwise GracefulStop would wait for them
	// forever.
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

// Stop cancels all calls and waits for the handlers.
func (s *Server) Stop() { s.grpc.Stop() }

// recovered, deferred, turns a panic of a handler into an error: one bad request must not
// end the process.
func recovered(logger *slog.Logger, where string, err *error) {
	if r := recover(); r != nil {
		logger.Error("handler panicked", "method", where, "panic", fmt.Sprint(r), "stack",
			string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}

// service is pb.PercolatorServer over a Transport. Its errors become a status in
// statusUnary.
type service struct {
	pb.UnsafePercolatorServer
	transport txn.Transport
	cfg       ServerConfig
	tables    *tableIDs
	guard     *Guard
	grants    *grants                           // of guard
	memory    *semaphore.Weighted               // of operations and their answers, of all connections
	limiter   *connlimit.Limiter                // of all listeners of Serve
	others    atomic.Pointer[connlimit.Limiter] // of Listen; nil: none
	counters  *serverCounters
	draining  chan struct{} // closed by Shutdown
}

// Timestamps requests timestamps from the oracle.
func (s *service) Timestamps(ctx context.Context,
	req *pb.TimestampsRequest) (*pb.TimestampsResponse, error) {
	// Limit the count, so that one client cannot exhaust the oracle's allocation; a client
	// that needs more repeats the request.
	count := max(1, min(int(req.Count), maxTimestamps))
	first, n, err := s.transport.Timestamps(tracing.With(ctx, req.Trace), count)
	if err != nil {
		return nil, err
	}
	return &pb.TimestampsResponse{
		First: uint64(first), Count: uint32(n), Leader: s.leaderOf(metaTablet),
	}, nil
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
	// A client of an earlier build does not repeat the request, so finish all splits here.
	for err == nil && !req.Stepwise && wire.PendingSplits(t, req) > 0 {
		t, err = s.transport.CreateTable(ctx, req)
	}
	if err == nil {
		// So that the client's first operations on the table need no query to meta.
		s.tables.created(t.GetId())
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

// WorkerDead reports whether the worker is known to be dead.
func (s *service) WorkerDead(ctx context.Context,
	req *pb.WorkerDeadRequest) (*pb.WorkerDeadResponse, error) {
	return &pb.WorkerDeadResponse{Dead: s.transport.WorkerDead(ctx, wire.Worker(req.Worker))}, nil
}

// SplitTablet splits a tablet. The response is empty; the tablet map has the result.
func (s *service) SplitTablet(ctx context.Context,
	req *pb.SplitTabletRequest) (*pb.SplitResponse, error) {
	return &pb.SplitResponse{}, s.transport.SplitTablet(ctx, req.Table, wire.String(req.Row))
}

// NodeStatus returns the node's status.
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

// HoldHistory acquires, renews or ends a lease on history, or reads or changes subscriptions. It
// adds the caller's origin to the holder's name: leases are limited per origin. A subscription
// belongs to the name in the caller's certificate or of its token.
func (s *service) HoldHistory(ctx context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	// Guard.Call has set the subscription's owner.
	if req.Subscription != nil {
		return s.transport.HoldHistory(ctx, &pb.HoldHistoryRequest{Subscription: req.Subscription})
	}
	held := &pb.HoldHistoryRequest{Token: req.Token, Oldest: req.Oldest, TtlMs: req.TtlMs}
	// Leave an empty name empty, so that meta refuses it.
	if req.Holder != "" {
		held.Holder = wire.WithOrigin(req.Holder, origin(ctx))
	}
	return s.transport.HoldHistory(ctx, held)
}
