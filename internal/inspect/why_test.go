package inspect_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestWhySaysWhatARunRead: why reports the columns that a run has read and written, that it wrote
// nothing, and the number of changes of a batch. It reports nothing of a forgotten run.
func TestWhySaysWhatARunRead(t *testing.T) {
	column := func(name string) percolator.Column { return percolator.Column{Table: "t", Name: name} }
	p := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Strong("copy", column("a"), func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			value, _, err := tx.Get(ctx, n.Row, column("a"))
			if _, _, also := tx.Get(ctx, "other", column("rate")); also != nil {
				return also
			}
			for _, err := range tx.Scan(ctx, percolator.Rows("t").Prefix("none")) {
				return cmp.Or(err, errors.New("found"))
			}
			tx.Set(n.Row, column("b"), value)
			tx.Set(n.Row+"x", column("b"), value)
			return err
		})
		r.Strong("nothing", column("b"), func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			_, err := tx.GetMulti(ctx, percolator.CellKey{Row: n.Row, Column: column("wrong")})
			return err
		})
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db := p.DB()
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("row", column("a"), []byte("1"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	for observer, want := range map[string]string{
		"copy": "read t/a, t/rate, t/all columns; wrote 2 cells of t/b", "nothing": "read t/wrong; wrote nothing",
	} {
		why, err := inspect.Explain(ctx, handle.Client(db), inspect.Commands{Program: "percolator"}, "", "row", observer)
		if err != nil {
			t.Fatal(err)
		}
		if why.Effects == nil || why.Effects.Text() != want {
			t.Errorf("UNSAID: %s: %+v, want %s", observer, why.Effects, want)
		}
	}
}
