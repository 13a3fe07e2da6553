package request

import (
	"context"
	"time"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrNotSent is wrapped by a Transport's errors if the operation did not reach its tablet.
var ErrNotSent = NewError("request not sent")

// Transport carries operations to tablets, the oracle and meta: in process in a node's own DB,
// gRPC after Dial. All methods may be used concurrently. Neither side changes a message after
// it has been passed.
type Transport interface {
	// Send sends one operation to the leader of the tablet. A response with Error set is an
	// answer. A returned error means that there was no answer: the outcome is unknown, unless
	// it wraps ErrNotSent. If it also wraps an OverloadedError the caller should pause. A sent
	// operation may be delivered a second time, even after its answer.
	Send(ctx context.Context, tablet *pb.TabletDescriptor,
		req *pb.TabletRequest) (*pb.TabletResponse, error)
	// Timestamps requests count timestamps from the oracle: first, first+1, … It may return
	// fewer, but at least one.
	Timestamps(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error)
	// Locate returns up to limit descriptors of the tablet map in range order, starting with
	// the one that holds (table, row).
	Locate(ctx context.Context, table mvcc.TableID, row string, limit int) ([]*pb.TabletDescriptor,
		error)
	// CreateTable creates a table or adds split keys to it. It may return while split keys of
	// the request are pending; the caller then repeats it.
	CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error)
	// DropTable drops the table with the id, if it has the name. It succeeds if the table is
	// already dropped. With an id of 0, for callers that found no table of that name, it
	// finishes an earlier drop. Otherwise it returns CODE_NO_TABLE.
	DropTable(ctx context.Context, name string, id mvcc.TableID) error
	Tables(ctx context.Context) ([]*pb.Table, error)
	Catalogue(ctx context.Context) (*pb.Catalogue, error)
	// SplitTablet splits the tablet that holds the row in two, of which the second begins with the
	// row. It succeeds if a tablet already begins there.
	SplitTablet(ctx context.Context, table string, row string) error
	// WorkerDead reports whether the worker is known to be dead (design section 4, "Liveness").
	WorkerDead(ctx context.Context, worker mvcc.Worker) bool
	// NodeStatus returns the status of the node that answers.
	NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error)
	// Worker returns this process's identity in its locks.
	Worker() mvcc.Worker
	// Observers lists the catalogue's observers with their pending notifications.
	Observers(ctx context.Context) ([]*pb.ObserverState, error)
	// HoldHistory acquires, renews or ends a bounded lease on the history from a timestamp on
	// (design section 4, "Bounded history"), or, with Subscription set, reads or changes
	// subscriptions.
	HoldHistory(ctx context.Context, req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error)
	// AdminConn returns the connection for the Admin service, for operators and for the client's
	// queries of the cluster's policy.
	AdminConn() grpc.ClientConnInterface
	Close() error
}

// ServerError is a node's refusal of an administrative method of Transport. (Send returns a
// pb.Error in its response instead.)
type ServerError struct {
	Code    pb.Error_Code
	Message string
	// RetryAfter is the retry delay of a request refused for overload or low disk space; 0 means
	// unknown whether a retry helps.
	RetryAfter time.Duration
}

// Error returns the node's message, without the code.
func (e *ServerError) Error() string { return pkg + ": " + e.Message }

// Text returns the node's message.
func (e *ServerError) Text() string { return e.Message }

// AtOnce is implemented by a Transport in the oracle's process, which can return timestamps
// without waiting.
type AtOnce interface {
	// TimestampsNow is Transport.Timestamps without waiting; ok is false if it would wait.
	TimestampsNow(count int) (first mvcc.Timestamp, ok bool)
}
