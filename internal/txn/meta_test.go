package txn_test

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// answers is a process that answers what the test says; what is nil the world answers.
type answers struct {
	*txntest.Process
	catalogue func() (*pb.Catalogue, error)
	status    func() (*pb.NodeStatusResponse, error)
	tables    func(ctx context.Context) ([]*pb.Table, error)
	locate    func(table mvcc.TableID, row string) ([]*pb.TabletDescriptor, error)
	// answer, if it returns one, replaces a tablet's answer.
	answer func(req *pb.TabletRequest) *pb.TabletResponse
}

func (a *answers) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	resp, err := a.Process.Send(ctx, d, req)
	if err == nil && a.answer != nil {
		if own := a.answer(req); own != nil {
			return own, nil
		}
	}
	return resp, err
}

func (a *answers) Catalogue(ctx context.Context) (*pb.Catalogue, error) {
	if a.catalogue != nil {
		return a.catalogue()
	}
	return a.Process.Catalogue(ctx)
}

func (a *answers) NodeStatus(ctx context.Context) (*pb.NodeStatusResponse, error) {
	if a.status != nil {
		return a.status()
	}
	return a.Process.NodeStatus(ctx)
}

func (a *answers) Tables(ctx context.Context) ([]*pb.Table, error) {
	if a.tables != nil {
		return a.tables(ctx)
	}
	return a.Process.Tables(ctx)
}

func (a *answers) Locate(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	if a.locate != nil {
		return a.locate(table, row)
	}
	return a.Process.Locate(ctx, table, row, limit)
}

// answering returns a client over a process of its own whose answers the test changes.
func (w *world) answering(cfg txn.Config) (*txn.Client, *answers) {
	w.t.Helper()
	a := &answers{Process: w.Process(7, uint64(w.Timestamps(1)))}
	c := txn.NewClient(a, cfg)
	w.t.Cleanup(func() {
		a.Inject(nil)
		a.Oracle(nil)
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return c, a
}

func refused(code pb.Error_Code) error {
	return &txn.ServerError{Code: code, Message: "refused by the test"}
}
