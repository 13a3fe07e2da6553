package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/txn"
)

// Sessions of workers (docs/adr/0073). The node's part that hosts observers reads and writes the
// stream (ServerConfig.Work); a session has a connection of its own, so that no operation delays
// its messages.

// WorkStream is the node's side of a worker's session.
type WorkStream interface {
	Send(*pb.WorkResponse) error
	Recv() (*pb.WorkRequest, error)
}

// ErrDraining is the cause of the end of a session's context when the node stops.
var ErrDraining = errors.New("rpc: the node is stopping")

// Work serves a worker's session.
func (s *service) Work(stream grpc.BidiStreamingServer[pb.WorkRequest, pb.WorkResponse]) error {
	if s.cfg.Work == nil {
		return status.Error(codes.Unimplemented, "this node accepts no workers")
	}
	who, err := callerOf(stream.Context(), &s.cfg)
	if err != nil {
		return err
	}
	err = s.work(stream.Context(), who, stream)
	if _, own := status.FromError(err); own {
		return err
	}
	return toStatus(err)
}

// work serves the caller's session.
func (s *service) work(ctx context.Context, who Caller, stream WorkStream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with ctx, at the latest when this handler returns
		select {
		case <-s.draining:
			cancel(ErrDraining)
		case <-ctx.Done():
		}
	}()
	may := func(table uint32) error {
		if err := who.checkRevoked(ctx, &s.cfg); err != nil {
			return err
		}
		// Each run writes an acknowledgment in the table.
		if e := s.grants.refuseTable(who, table, "Work", certs.Writer); e != nil {
			return serverError(e)
		}
		return nil
	}
	return s.cfg.Work(ctx, stream, may)
}

// worksHeader marks the operations of a worker.
const worksHeader = "percolator-works"

func withWorks(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, worksHeader, "1")
}

func worksIn(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, worksHeader)) > 0
}

// WorkSession is a worker's side of its session with one node. Send and Recv may be called
// concurrently with each other, and each by one goroutine at a time. Their errors are those of
// calls; that of a node that refuses the worker is a *txn.ServerError.
type WorkSession struct {
	stream interface {
		Send(*pb.WorkRequest) error
		Recv() (*pb.WorkResponse, error)
		CloseSend() error
	}
	end func() error
}

// OpenWork opens a session with the node at the address, on a connection of its own. The caller
// closes it.
func (c *Client) OpenWork(ctx context.Context, addr string) (*WorkSession, error) {
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	conn, err := c.dial(WithPort(addr))
	if err != nil {
		return nil, txn.Invalid("address %q: %v", addr, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewPercolatorClient(conn).Work(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(fromStatus(err), conn.Close())
	}
	return &WorkSession{stream, func() error {
		cancel()
		return conn.Close()
	}}, nil
}

// Send sends one message.
func (s *WorkSession) Send(m *pb.WorkRequest) error { return fromStatus(s.stream.Send(m)) }

// Recv waits for the next message of the node.
func (s *WorkSession) Recv() (*pb.WorkResponse, error) {
	m, err := s.stream.Recv()
	return m, fromStatus(err)
}

// Leave tells the node that the worker sends nothing more.
func (s *WorkSession) Leave() error { return fromStatus(s.stream.CloseSend()) }

// Close ends the session.
func (s *WorkSession) Close() error { return s.end() }

// Cluster returns the id of the cluster that Dial has connected to.
func (c *Client) Cluster() string { return c.cluster }

// Incarnation identifies the client among workers.
func (c *Client) Incarnation() uint64 { return c.worker.Incarnation }

// Addresses returns those that Dial was given, with their ports.
func (c *Client) Addresses() []string {
	out := make([]string, len(c.links))
	for i, l := range c.links {
		out[i] = l.addr
	}
	return out
}
