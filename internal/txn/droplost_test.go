package txn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// dropLost loses the answer to the first drop of a table, and another process then creates a table
// of that name.
type dropLost struct {
	*txntest.Process
	drops int
}

func (d *dropLost) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	if err := d.Process.DropTable(ctx, name, id); err != nil {
		return err
	}
	if d.drops++; d.drops > 1 {
		return nil
	}
	if _, err := d.CreateTable(ctx, &pb.CreateTableRequest{Name: name}); err != nil {
		return err
	}
	return fmt.Errorf("%w: the answer was lost", txn.ErrUnavailable)
}

// TestDropAfterALostAnswer: the attempt after a lost answer does not drop another process's table.
func TestDropAfterALostAnswer(t *testing.T) {
	w := newWorld(t)
	d := &dropLost{Process: w.Process(7, 1)}
	c := txn.NewClient(d, txn.Config{})
	defer func() { _ = c.Close() }()
	if err := c.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	tables, err := c.Tables(w.ctx)
	if err != nil || len(tables) != 1 || tables[0].Name != "t" {
		t.Errorf("%d orders; another's table is gone: %v, %v", d.drops, tables, err)
	}
}

// dropRaced makes another process drop and recreate the table between the client's lookup and its
// drop.
type dropRaced struct{ *txntest.Process }

func (d *dropRaced) DropTable(ctx context.Context, name string, id mvcc.TableID) error {
	if err := d.Process.DropTable(ctx, name, id); err != nil {
		return err
	}
	if _, err := d.CreateTable(ctx, &pb.CreateTableRequest{Name: name}); err != nil {
		return err
	}
	return d.Process.DropTable(ctx, name, id)
}

// TestDropOfTheTableThatWasSeen: a table that takes the name after the client's lookup stays.
func TestDropOfTheTableThatWasSeen(t *testing.T) {
	w := newWorld(t)
	c := txn.NewClient(&dropRaced{w.Process(7, 1)}, txn.Config{})
	defer func() { _ = c.Close() }()
	if err := c.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	tables, err := c.Tables(w.ctx)
	if err != nil || len(tables) != 1 || tables[0].Name != "t" {
		t.Errorf("the tables are %v, %v, want t alone", tables, err)
	}
	if err := c.DropTable(w.ctx, "none"); !errors.Is(err, txn.ErrNoTable) {
		t.Errorf("a table that there is not: %v", err)
	}
}

// TestRecreatedTable: a client that knows a table's id follows the table that another client has created since
// under the same name.
func TestRecreatedTable(t *testing.T) {
	w := newWorld(t)
	other, _ := w.client(txn.Config{})
	w.set(other, "old", "a")
	c, p := w.client(txn.Config{})
	var gone atomic.Bool
	dropped := uint32(w.table)
	p.Inject(func(req *pb.TabletRequest) (f txntest.Fault) {
		if gone.Load() && req.GetChanges().GetSpan().GetTable() == dropped {
			f.Answer = &pb.Error{Code: pb.Error_CODE_NO_TABLE, Message: "dropped"}
		}
		return f
	})
	if got := w.get(c, "a"); got != "old" {
		t.Fatal(got)
	}
	if err := other.DropTable(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := other.CreateTable(w.ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	w.set(other, "new", "a")
	gone.Store(true)
	for c, err := range c.Changes(w.ctx, txn.ChangeSpec{Ranges: []txn.ScanSpec{{Table: "t"}}}) {
		if err != nil || string(c.Value) != "new" {
			t.Errorf("the first change is %q, %v", c.Value, err)
		}
		break
	}
}

// TestLookUpWhileTheCacheIsEmptied: a table is found although other goroutines look all tables up again, and
// a failed operation forgets them.
func TestLookUpWhileTheCacheIsEmptied(t *testing.T) {
	w := newWorld(t)
	c, _ := w.client(txn.Config{})
	w.set(c, "v", "a")
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 200 {
				if _, err := c.TableID(w.ctx, "t"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	read := make(chan struct{})
	go func() { readers.Wait(); close(read) }()
	for {
		select {
		case <-read:
			return
		default:
			_ = c.DropTable(w.ctx, "none") // fails, and empties the cache
		}
	}
}
