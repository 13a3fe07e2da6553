package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// OraclePort is how requests for timestamps reach this node's oracle.
type OraclePort = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// Transport is a node's own txn.Transport: operations go by pointer into the tablets' mailboxes, which is where they are
// batched; nothing is copied or marshalled.
type Transport struct {
	txn.Admin
	router *Router
	meta   *Meta
	oracle *OraclePort
	self   mvcc.Worker
	status func(context.Context) (*pb.NodeStatusResponse, error)
}

var _ txn.Transport = (*Transport)(nil)

// NewTransport wires a node's transport.
func NewTransport(router *Router, meta *Meta, oracle *OraclePort, self mvcc.Worker,
	status func(context.Context) (*pb.NodeStatusResponse, error), admin txn.Admin) *Transport {
	return &Transport{Admin: admin, router: router, meta: meta, oracle: oracle, self: self, status: status}
}

// overloadedRetry is the hint in refusals of a full queue.
const overloadedRetry = 5 * time.Millisecond

// Send implements txn.Transport.
func (t *Transport) Send(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	return send(ctx, t.router, d.GetTabletId(), req)
}

func send(ctx context.Context, router *Router, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	port := router.Port(tablet)
	if port == nil {
		return serverError(pb.Error_CODE_UNAVAILABLE, "tablet %d is not on this node", tablet), nil
	}
	r, err := port.Ask(ctx, req, wire.Bypasses(req))
	if errors.Is(err, actorkit.ErrOverloaded) {
		r = serverError(pb.Error_CODE_OVERLOADED, "tablet %d has %d operations waiting", tablet, port.Queued())
		r.Error.RetryAfterMs = uint32(overloadedRetry.Milliseconds())
		return r, nil
	}
	return r, err
}

func serverError(code pb.Error_Code, format string, args ...any) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// LocalSender is a Sender over the router's ports.
func LocalSender(router *Router) Sender {
	return func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (r *pb.TabletResponse, err error) {
		err = retry(ctx, func() (bool, error) {
			r, err = send(ctx, router, tablet, req)
			if err != nil {
				return false, err
			}
			switch e := r.GetError(); e.GetCode() {
			case pb.Error_CODE_UNSPECIFIED:
				return true, nil
			case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_OVERLOADED, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_UNAVAILABLE:
				return false, nil
			default:
				return false, &txn.ServerError{Code: e.GetCode(), Message: e.GetMessage()}
			}
		})
		return r, err
	}
}

// Timestamps implements txn.Transport.
func (t *Transport) Timestamps(ctx context.Context, count int) (first mvcc.Timestamp, n int, err error) {
	r, err := t.oracle.Ask(ctx, &pb.TimestampsRequest{Count: uint32(count)}, false)
	if err != nil {
		return 0, 0, fmt.Errorf("oracle: %w", err)
	}
	return mvcc.Timestamp(r.First), int(r.Count), nil
}

// Locate implements txn.Transport.
func (t *Transport) Locate(_ context.Context, table mvcc.TableID, row string, limit int) ([]*pb.TabletDescriptor, error) {
	held := t.router.Locate(table, row, limit)
	if len(held) == 0 {
		return nil, refuse(pb.Error_CODE_UNAVAILABLE, "no tablet is known to hold table %d row %.64q", table, row)
	}
	return held, nil
}

// CreateTable implements txn.Transport.
func (t *Transport) CreateTable(ctx context.Context, name string, splitKeys []string) (*pb.Table, error) {
	return t.meta.CreateTable(ctx, name, splitKeys)
}

// DropTable implements txn.Transport.
func (t *Transport) DropTable(ctx context.Context, name string) error {
	return t.meta.DropTable(ctx, name)
}

// Tables implements txn.Transport.
func (t *Transport) Tables(ctx context.Context) ([]*pb.Table, error) { return t.meta.Tables(ctx) }

// Catalogue implements txn.Transport.
func (t *Transport) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return t.meta.Catalogue(ctx)
}

// SplitTablet implements txn.Transport.
func (t *Transport) SplitTablet(ctx context.Context, table string, row string) error {
	return t.meta.SplitTablet(ctx, table, row)
}

// WorkerDead implements txn.Transport. What one node knows for sure: its own earlier incarnations have ended, for the
// store is held by one process at a time.
func (t *Transport) WorkerDead(_ context.Context, w mvcc.Worker) bool {
	return w.Node == t.self.Node && w.Node != 0 && w.Incarnation < t.self.Incarnation
}

// NodeStatus implements txn.Transport.
func (t *Transport) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return t.status(ctx)
}

// Worker implements txn.Transport.
func (t *Transport) Worker() mvcc.Worker { return t.self }

// Close implements txn.Transport: the node outlives its handles.
func (t *Transport) Close() error { return nil }
