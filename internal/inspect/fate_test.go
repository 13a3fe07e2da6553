package inspect

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// asyncCommit writes rows a and z of a table with two tablets by an asynchronous commit, of which only
// the prewrites arrive; without complete, that of z does not either. It returns the primary's prewrite,
// and the commit timestamp, or 0.
func asyncCommit(ctx context.Context, t *testing.T, complete bool) (cluster *txntest.Cluster,
	primary *pb.PrewriteRequest, at mvcc.Timestamp) {
	cluster = txntest.New()
	cluster.AddTable("t", "m")
	dying := cluster.Process(1, 1)
	dying.Inject(func(req *pb.TabletRequest) txntest.Fault {
		p := req.GetPrewrite()
		if len(p.GetSecondaries()) > 0 {
			primary = p
			return txntest.Fault{}
		}
		return txntest.Fault{Lost: p == nil || !complete}
	})
	c := newClient(t, dying, txn.Config{
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
	if at, err = tx.Commit(ctx); (err == nil) != complete {
		t.Fatal(at, err)
	}
	return cluster, primary, at
}

// newClient returns a client that ends with the test.
func newClient(t *testing.T, transport txn.Transport, cfg txn.Config) *txn.Client {
	c := txn.NewClient(transport, cfg)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestFateOfAnAsyncCommit: an asynchronous commit whose locks all exist is committed, also after they
// have expired; without one of them it is alive, and expires.
func TestFateOfAnAsyncCommit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, complete := range []bool{true, false} {
		cluster, prewrite, at := asyncCommit(ctx, t, complete)
		asks := newClient(t, cluster.Process(2, 1), txn.Config{})
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
	}
}

// TestFateBesideASilentTablet: if the tablets of an asynchronous commit do not answer within askTimeout,
// its primary's lock alone decides.
func TestFateBesideASilentTablet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, prewrite, _ := asyncCommit(t.Context(), t, true)
		silent := cluster.Process(2, 1)
		silent.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if req.GetHistory() != nil { // of the primary's row
				return txntest.Fault{}
			}
			return txntest.Fault{Lost: true, Before: func(ctx context.Context) { <-ctx.Done() }}
		})
		asks := newClient(t, silent, txn.Config{})
		w := &Why{Now: uint64(cluster.Timestamps(1)), names: &Names{}}
		o, began := Obstacle{StartTS: prewrite.StartTs}, time.Now()
		err := w.fate(t.Context(), asks, &o, prewrite.Primary, prewrite.Expiry)
		if took := time.Since(began); err != nil || took != askTimeout || o.State != FateAlive ||
			o.Until != prewrite.Expiry {
			t.Errorf("after %v: %+v, %v; want it alive until %d, after %v", took, o, err, prewrite.Expiry, askTimeout)
		}
	})
}
