package txn

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrNotSent is wrapped by a Transport's errors when the operation surely did not reach its tablet.
var ErrNotSent = NewError("request not sent")

// Transport carries operations to tablets, the oracle and meta: in process in a node's
// own DB, gRPC after Dial. All methods may be used concurrently. Messages are not changed
// after they are passed on, by either side.
type Transport interface {
	// Send carries one operation to the leader of the tablet. A response with Error set
	// is an answer. An error means that there was no answer: the outcome is unknown,
	// unless it wraps ErrNotSent. One that also wraps an OverloadedError asks for a pause.
	// An operation that was sent may arrive once more, even after its answer.
	Send(ctx context.Context, tablet *pb.TabletDescriptor,
		req *pb.TabletRequest) (*pb.TabletResponse, error)
	// Timestamps asks the oracle for count timestamps first, first+1, …; it may give
	// fewer, never none.
	Timestamps(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error)
	// Locate returns up to limit descriptors from the tablet map, in range order,
	// beginning with the one that holds (table, row).
	Locate(ctx context.Context, table mvcc.TableID, row string, limit int) ([]*pb.TabletDescriptor,
		error)
	// CreateTable creates a table or adds split keys to it. It may return while split keys of
	// the request are pending in the table: the caller then asks again.
	CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error)
	// DropTable drops the table with the id, if it has the name; one that is dropped
	// already is no error. With an id of 0, for callers that saw no table of that name,
	// it finishes an earlier drop. Otherwise it returns CODE_NO_TABLE.
	DropTable(ctx context.Context, name string, id mvcc.TableID) error
	Tables(ctx context.Context) ([]*pb.Table, error)
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	// SplitTablet splits the tablet that holds the row just before it; a boundary that is
	// there already is no error.
	SplitTablet(ctx context.Context, table string, row string) error
	// WorkerDead reports whether the worker is known to be dead (invariant 7).
	WorkerDead(ctx context.Context, worker mvcc.Worker) bool
	// NodeStatus describes the node that answers.
	NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error)
	// Worker identifies this process in the locks it writes.
	Worker() mvcc.Worker
	// Observers lists the catalogue's observers with what waits for them.
	Observers(ctx context.Context) ([]*pb.ObserverState, error)
	// HoldHistory is a capped lease on history at a timestamp and later (design section
	// 4, invariant 11).
	HoldHistory(ctx context.Context, req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error)
	// AdminConn carries the calls of the service Admin, which operators make; the
	// coordinator makes none.
	AdminConn() grpc.ClientConnInterface
	Close() error
}

// ServerError is what a Transport's administrative methods return when the node refused.
// (Send returns a pb.Error in its response instead.)
type ServerError struct {
	Code    pb.Error_Code
	Message string
	// nothing was done for want of room: when to ask again; 0: it is not known whether
	// that helps
	RetryAfter time.Duration
}

// Error is the node's message. Its code is for programs: Run, and what errors.Is finds, go by it.
func (e *ServerError) Error() string { return pkg + ": " + e.Message }

// Text is the node's message.
func (e *ServerError) Text() string { return e.Message }

// AtOnce is a Transport in the oracle's process, which can give timestamps without
// waiting.
type AtOnce interface {
	// TimestampsNow is Transport.Timestamps; ok is false if they cannot be had so now.
	TimestampsNow(count int) (first mvcc.Timestamp, ok bool)
}
