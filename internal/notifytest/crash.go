package notifytest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// KillAfterPrimary runs fn in a transaction of a coordinator that dies right after its
// primary's commit: nothing that it sends later arrives.
func KillAfterPrimary(t testing.TB, c *Cluster, fn func(tx *percolator.Tx)) {
	t.Helper()
	process := c.Process(99, 1)
	var dead atomic.Bool
	process.Inject(func(req *pb.TabletRequest) txntest.Fault {
		decides := req.GetCommit() != nil || req.GetOnePhase() != nil
		if decides && !dead.Swap(true) {
			return txntest.Fault{} // the primary's: it arrives
		}
		return txntest.Fault{Lost: dead.Load()}
	})
	client := txn.NewClient(process, txn.Config{
		OperationTimeout: 100 * time.Millisecond, SettleTimeout: 100 * time.Millisecond,
	})
	err := handle.NewDB(client).Transact(context.Background(),
		func(_ context.Context, tx *percolator.Tx) error {
			fn(tx)
			return nil
		})
	if err != nil {
		t.Fatalf("the commit failed although its primary was committed: %v", err)
	}
	if client.Stats().TwoPhase != 1 {
		t.Fatal("the transaction was not committed in two phases")
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
