package txn_test

import (
	"context"
	"errors"
	"fmt"
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
