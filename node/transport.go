package node

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
)

// transport is the node's own txn.Transport: the router's operations, changes of the schema in meta,
// and requests to other parts of the node. It owns no state; the node's own client and the server of
// remote clients call it, on goroutines that may wait.
type transport struct {
	*route.Transport
	schema    *meta.Schema
	catalogue *meta.Observers
	history   *meta.History
	policy    *cluster.PolicyView
	logger    *slog.Logger

	// These use the client, which is created over this transport; openParts sets them before their
	// first use.
	client    *txn.Client
	observers *hosting.Host
	status    *statuses
	admin     *admin.Service
}

var _ txn.Transport = (*transport)(nil)

// WorkerDead implements txn.Transport. Of the workers in remote clients it knows only those that
// had a session with this node.
func (t *transport) WorkerDead(ctx context.Context, w mvcc.Worker) bool {
	if w.Node == 0 {
		return t.observers.WorkerDead(w)
	}
	return t.Transport.WorkerDead(ctx, w)
}

// DropTable implements txn.Transport.
func (t *transport) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	return t.schema.DropTable(ctx, name, uint32(id))
}

// Tables implements txn.Transport.
func (t *transport) Tables(ctx context.Context) ([]*pb.Table, error) { return t.schema.Tables(ctx) }

// Catalogue implements txn.Transport.
func (t *transport) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return t.catalogue.Catalogue(ctx)
}

// SplitTablet implements txn.Transport.
func (t *transport) SplitTablet(ctx context.Context, table, row string) error {
	return t.schema.SplitTablet(ctx, table, row)
}

// NodeStatus implements txn.Transport. It returns the status of this node.
func (t *transport) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return t.status.get(ctx, false)
}

// Observers implements txn.Transport. It queries all live nodes.
func (t *transport) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	return t.observers.StatesEverywhere(ctx)
}

// HoldHistory implements txn.Transport. The answer, except to a request about a subscription,
// contains the policy's history retention, which applies without a hold.
func (t *transport) HoldHistory(ctx context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	now, err := t.client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	if req.Subscription != nil {
		return t.history.Subscription(ctx, now, req.Subscription)
	}
	r, err := t.history.HoldHistory(ctx, now, req)
	if err != nil {
		return nil, err
	}
	r.HistoryMs = t.policy.Now().GetHistoryMs()
	return r, nil
}

// AdminConn implements txn.Transport.
func (t *transport) AdminConn() grpc.ClientConnInterface { return admin.Conn(t.admin) }

// CreateTable implements txn.Transport. It returns early while splits are pending, and the caller
// repeats the request. Before the last request returns, all nodes that answer have linked their
// observers of the table's name to it. The node reports the creation of tablets as a job.
func (t *transport) CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	if len(req.SplitKeys) > 0 {
		t.status.reported.Splitting(req.Name)
	}
	made, err := t.schema.CreateTableStep(ctx, req)
	if err != nil {
		return nil, err
	}
	if wire.PendingSplits(made, req) > 0 {
		return made, nil
	}
	if err := t.observers.LinkAnew(ctx); err != nil {
		t.logger.Warn("a table was created, but not every node has linked its observers to it yet; the remaining nodes will do so automatically",
			"table", req.Name, "error", err)
	}
	return made, nil
}
