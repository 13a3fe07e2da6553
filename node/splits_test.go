package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// TestSplitsBySize: a growing table is split repeatedly during transfers in another table and
// writes to it; every row stays readable. A table with one large row stays one tablet, however
// often the row is written.
func TestSplitsBySize(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	const limit, rows, size = 256 << 10, 3000, 1000
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.Splits.MaxBytes, c.Splits.Interval = limit, 50*time.Millisecond
	})
	db := n.DB()
	single := percolator.Column{Table: "single", Name: "c"}
	for _, name := range []string{past.Table, single.Table} {
		if err := db.CreateTable(ctx, percolator.TableSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := workload.Prepare(ctx, db, 2); err != nil {
		t.Fatal(err)
	}
	if err := workload.OpenBank(ctx, db); err != nil {
		t.Fatal(err)
	}
	before := len(n.Status().Tablets)
	bank := make(chan error)
	go func() {
		bank <- workload.Bank(ctx, db, workload.Load{
			Workers: 2, Duration: 3 * time.Second, Seed: 1,
		})
	}()
	value := make([]byte, size)
	for from := 0; from < rows; from += 10 {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := from; i < from+10; i++ {
				tx.Set(fmt.Sprintf("%04d", i*7%rows), past, value)
			}
			tx.Set("the only one", single, value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-bank; err != nil {
		t.Error(err)
	}
	want := before + rows*size/limit/2
	status := until(ctx, t, n, fmt.Sprintf("%d tablets are %d", before, want),
		func(s *pb.NodeStatusResponse) bool {
			return len(s.Tablets) >= want
		})
	if most := before + 4*rows*size/limit; len(status.Tablets) > most {
		t.Errorf("%d tablets of %d bytes in all, each up to %d", len(status.Tablets), rows*size,
			limit)
	}
	id, err := handle.Client(db).TableID(ctx, single.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range status.Tablets {
		if s.Tablet.StartTable == uint32(id) && len(s.Tablet.StartRow) > 0 {
			t.Errorf("a table of one row was split: %v", s.Tablet)
		}
	}
	seen := 0
	s, err := db.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, err := range s.Scan(ctx, percolator.Rows(past.Table), past) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
	}
	if seen != rows {
		t.Errorf("%d rows, want %d", seen, rows)
	}
}

// TestSplitsByLoad: a tablet with many readers is split where their reads halve; one whose readers
// all read one row is not.
func TestSplitsByLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n := open(t, "", func(c *node.Config) {
		c.Splits.MaxLoad, c.Splits.Interval = 200, 50*time.Millisecond
	})
	db := n.DB()
	hot := percolator.Column{Table: "hot", Name: "c"}
	for _, name := range []string{past.Table, hot.Table} {
		if err := db.CreateTable(ctx, percolator.TableSpec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	before, i := len(n.Status().Tablets), 0
	status := until(ctx, t, n, "a busy tablet is split", func(s *pb.NodeStatusResponse) bool {
		for range 50 {
			i++
			spread := fmt.Sprintf("%02d", i*37%100)
			for column, row := range map[percolator.Column]string{past: spread, hot: "hot"} {
				s, err := db.Snapshot(ctx)
				if err == nil {
					_, _, err = s.Get(ctx, row, column)
					_ = s.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return len(s.Tablets) > before
	})
	id, err := handle.Client(db).TableID(ctx, hot.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range status.Tablets {
		if row := string(s.Tablet.StartRow); row != "" &&
			(s.Tablet.StartTable == uint32(id) || row < "25" || row > "75") {
			t.Errorf("split at %q of table %d", row, s.Tablet.StartTable)
		}
	}
}
