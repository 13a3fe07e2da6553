package txn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// dropLost loses the answer to the first drop of a table, and another process makes a table of that name meanwhile.
type dropLost struct {
	*txntest.Process
	drops int
}

func (d *dropLost) DropTable(ctx context.Context, name string) error {
	if err := d.Process.DropTable(ctx, name); err != nil {
		return err
	}
	if d.drops++; d.drops > 1 {
		return nil
	}
	if _, err := d.CreateTable(ctx, name, nil); err != nil {
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
	if d.drops != 1 {
		t.Errorf("%d tables were dropped", d.drops)
	}
}
