package inspect

import (
	"context"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// TestFateOfAnAsyncCommit: an asynchronous commit whose locks all exist is committed, also after they
// have expired; without one of them it is alive, and expires.
func TestFateOfAnAsyncCommit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, complete := range []bool{true, false} {
		cluster := txntest.New()
		cluster.AddTable("t", "m")
		dying := cluster.Process(1, 1)
		var prewrite *pb.PrewriteRequest // the primary's
		dying.Inject(func(req *pb.TabletRequest) txntest.Fault {
			p := req.GetPrewrite()
			if len(p.GetSecondaries()) > 0 {
				prewrite = p
				return txntest.Fault{}
			}
			return txntest.Fault{Lost: p == nil || !complete}
		})
		c := txn.NewClient(dying, txn.Config{
			SettleTimeout: time.Millisecond, OperationTimeout: 20 * time.Millisecond,
			AsyncCommits: func() bool { return true },
		})
		tx, err := c.Begin(ctx, txn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []string{"a", "z"} {
			tx.Set(txn.Key{Table: "t", Row: row, Column: "c"}, []byte("v"))
		}
		at, err := tx.Commit(ctx)
		if (err == nil) != complete {
			t.Fatal(at, err)
		}
		asks := txn.NewClient(cluster.Process(2, 1), txn.Config{})
		for _, undecided := range []string{FateAlive, FateExpired} {
			w := &Why{Now: uint64(cluster.Timestamps(1)), names: &Names{}}
			o := Obstacle{StartTS: prewrite.StartTs}
			if err := w.fate(ctx, asks, &o, prewrite.Primary, prewrite.Expiry); err != nil {
				t.Fatal(err)
			}
			if complete && (o.State != FateCommitted || mvcc.Timestamp(o.CommitTS) != at || o.Until != 0) ||
				!complete && o.State != undecided {
				t.Errorf("complete %v, %s if undecided: %+v, committed at %d", complete, undecided, o, at)
			}
			cluster.Advance(time.Hour)
		}
		for _, c := range []*txn.Client{c, asks} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
