package rpc

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// unaryCalls are the methods of a txn.Transport that make one unary call over a connection, for Client
// and Local.
type unaryCalls struct {
	rpc    pb.PercolatorClient
	worker mvcc.Worker
	works  bool // ClientConfig.Works
}

// newUnaryCalls returns the methods over the connection, with a new identity in locks: node 0 and a
// random incarnation.
func newUnaryCalls(conn grpc.ClientConnInterface) unaryCalls {
	return unaryCalls{rpc: pb.NewPercolatorClient(conn), worker: mvcc.Worker{Incarnation: rand.Uint64()}}
}

// Worker returns this process's identity in locks.
func (c unaryCalls) Worker() mvcc.Worker { return c.worker }

// Locate reads the tablet map.
func (c unaryCalls) Locate(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	req := &pb.LocateRequest{Table: uint32(table), Row: wire.Bytes(row), Limit: uint32(limit)}
	resp, err := c.rpc.Locate(ctx, req)
	return resp.GetTablets(), err
}

// CreateTable implements txn.Transport.
func (c unaryCalls) CreateTable(ctx context.Context, req *pb.CreateTableRequest) (*pb.Table, error) {
	resp, err := c.rpc.CreateTable(ctx, req)
	return resp.GetTable(), err
}

// DropTable drops the table with the name and the id.
func (c unaryCalls) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	_, err := c.rpc.DropTable(ctx, &pb.DropTableRequest{Name: name, Id: uint32(id)})
	return err
}

// Tables lists the tables.
func (c unaryCalls) Tables(ctx context.Context) ([]*pb.Table, error) {
	resp, err := c.rpc.Tables(ctx, &pb.TablesRequest{})
	return resp.GetTables(), err
}

// Catalogue reads the catalogue of observed columns.
func (c unaryCalls) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	return c.rpc.GetCatalogue(ctx, &pb.CatalogueRequest{})
}

// SplitTablet splits a tablet.
func (c unaryCalls) SplitTablet(ctx context.Context, table, row string) error {
	_, err := c.rpc.SplitTablet(ctx, &pb.SplitTabletRequest{Table: table, Row: wire.Bytes(row)})
	return err
}

// WorkerDead reports whether the process is known to be dead. It returns false if there is no
// answer. Of remote clients, nodes track only those that run observers, and only these ask about
// each other: a lock that any other client encounters is mostly not of an observer's run.
func (c unaryCalls) WorkerDead(ctx context.Context, worker mvcc.Worker) bool {
	if worker.Node == 0 && !c.works {
		return false
	}
	resp, err := c.rpc.WorkerDead(ctx, &pb.WorkerDeadRequest{Worker: wire.WorkerPB(worker)})
	return err == nil && resp.Dead
}

// NodeStatus returns the status of the node that answers.
func (c unaryCalls) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return c.rpc.NodeStatus(ctx, &pb.NodeStatusRequest{})
}

// Observers lists the catalogue's observers.
func (c unaryCalls) Observers(ctx context.Context) ([]*pb.ObserverState, error) {
	resp, err := c.rpc.Observers(ctx, &pb.ObserversRequest{})
	return resp.GetObservers(), err
}

// HoldHistory acquires, renews or ends a lease on history, or reads or changes subscriptions.
func (c unaryCalls) HoldHistory(ctx context.Context,
	req *pb.HoldHistoryRequest) (*pb.HoldHistoryResponse, error) {
	return c.rpc.HoldHistory(ctx, req)
}
