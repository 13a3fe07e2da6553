package txn_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// older returns the deletion of all cells of "t" written before ts.
func older(ts mvcc.Timestamp) txn.Deletion {
	return txn.Deletion{
		ScanSpec: txn.ScanSpec{Table: "t"},
		Cutoff:   func(mvcc.Timestamp) mvcc.Timestamp { return ts },
	}
}

// TestRewrittenCellIsNotDeleted: a cell that is old when it is found and rewritten before the
// deletion commits stays.
func TestRewrittenCellIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	writer, _ := w.client(txn.Config{})
	old := w.set(c, "old", "a", "b", "h")
	rewritten := mvcc.Timestamp(0)
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		// Once the search has passed the tablet of b.
		if string(req.GetScan().GetSpan().GetStart()) == "g" && rewritten == 0 {
			rewritten = w.set(writer, "new", "b")
		}
		return txntest.Fault{}
	})
	d, err := c.DeleteSome(w.ctx, older(old+1))
	if err != nil || !d.Done || d.Cells != 2 || d.Oldest != rewritten {
		t.Errorf("deleted %+v, %v; want 2 cells, and %d as the oldest left", d, err, rewritten)
	}
	if got := w.get(c, "a") + w.get(c, "b") + w.get(c, "h"); got != "-new-" {
		t.Errorf("REWRITTEN-DELETED: a, b and h are %s, want -new-", got)
	}
}

// TestDeletionBesideEarlierBuilds: nodes that ignore keys_only and written_before return all
// cells, and only the old ones are deleted.
func TestDeletionBesideEarlierBuilds(t *testing.T) {
	w := newWorld(t)
	c, p := w.client(txn.Config{})
	old := w.set(c, "old", "a", "h")
	young := w.set(c, "young", "b", "z")
	p.Inject(func(req *pb.TabletRequest) txntest.Fault {
		if scan := req.GetScan(); scan != nil {
			scan.KeysOnly, scan.WrittenBefore = false, 0
		}
		return txntest.Fault{}
	})
	d, err := c.DeleteSome(w.ctx, older(old+1))
	if err != nil || !d.Done || d.Cells != 2 || d.Oldest != young {
		t.Errorf("deleted %+v, %v; want 2 cells, and %d as the oldest left", d, err, young)
	}
	if got := w.get(c, "a") + w.get(c, "b") + w.get(c, "z"); got != "-youngyoung" {
		t.Errorf("a, b and z are %s", got)
	}
	s, err := c.Snapshot(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for cell, err := range s.Scan(w.ctx, txn.ScanSpec{Table: "t", KeysOnly: true}) {
		if err != nil || cell.Value != nil {
			t.Errorf("a scan of keys yields %v, %v", cell, err)
		}
	}
}

// TestDeletionBoundsItsSearch: a transaction ends after some seconds without a cell to delete, at
// the end of a row, and the next one continues there.
func TestDeletionBoundsItsSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c, p := w.client(txn.Config{})
		w.set(c, "young", "a", "b", "h", "z")
		p.Inject(func(req *pb.TabletRequest) txntest.Fault {
			if scan := req.GetScan(); scan != nil {
				return txntest.Fault{Before: func(context.Context) { <-time.After(1500 * time.Millisecond) }}
			}
			return txntest.Fault{}
		})
		of, next := older(1), ""
		for {
			d, err := c.DeleteSome(w.ctx, of)
			if err != nil || d.Cells != 0 || d.Oldest == 0 {
				t.Fatalf("deleted %+v, %v, want no cell, and the oldest timestamp", d, err)
			}
			if next += fmt.Sprintf("%q ", d.Next); d.Done {
				break
			}
			of.From = d.Next
		}
		if want := `"p" "" `; next != want {
			t.Errorf("continued at %s, want %s", next, want)
		}
	})
}

// TestDeletionOfATableThatWasReplaced: a deletion by a table's id does not affect the table that
// has taken its name.
func TestDeletionOfATableThatWasReplaced(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	w.set(c, "old", "a")
	of := older(0)
	of.Cutoff, of.ID = nil, w.table
	if err := c.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTable(w.ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	w.set(c, "new", "a")
	_, _ = c.DeleteSome(w.ctx, of) // these tablets do not refuse cells of dropped tables
	if got := w.get(c, "a"); got != "new" {
		t.Errorf("a is %s, want new", got)
	}
}
