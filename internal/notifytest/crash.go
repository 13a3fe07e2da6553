package notifytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// errKilled is what a killed coordinator's requests end with.
var errKilled = errors.New("notifytest: this coordinator is dead")

// KillAfterPrimary runs fn in a transaction of a coordinator that dies right after its primary's commit: nothing that it
// sends later arrives.
func KillAfterPrimary(t testing.TB, c *Cluster, fn func(tx *percolator.Tx)) {
	t.Helper()
	tr := c.Transport(mvcc.Worker{Node: 99, Incarnation: 1})
	client := txn.NewClient(tr, txn.Config{OperationTimeout: 100 * time.Millisecond, SettleTimeout: 100 * time.Millisecond})
	var dead atomic.Bool
	tr.Intercept = func(_ context.Context, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if _, commit := req.Op.(*pb.TabletRequest_Commit); commit {
			if !dead.Swap(true) {
				return nil, nil // the primary's: it arrives
			}
		}
		if dead.Load() {
			return nil, errKilled
		}
		return nil, nil
	}
	db := percolator.NewDB(client)
	err := db.Transact(context.Background(), func(_ context.Context, tx *percolator.Tx) error {
		fn(tx)
		return nil
	})
	if err != nil {
		t.Fatalf("the primary's commit decides: %v", err)
	}
	if !dead.Load() {
		t.Fatal("the transaction was not committed in two phases")
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
