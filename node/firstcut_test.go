package node_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// TestFirstReadCutShort: a first read over the network whose answer exceeds one message still
// returns the timestamp that it has taken.
func TestFirstReadCutShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	db := dial(t, open(t, "", nil))
	value := bytes.Repeat([]byte("v"), 3<<20)
	for _, row := range []string{"a", "b"} {
		if err := set(ctx, db, row, cell, value); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		cells, err := tx.GetMulti(ctx, percolator.CellKey{Row: "a", Column: cell},
			percolator.CellKey{Row: "b", Column: cell})
		if err == nil && len(cells) != 2 {
			t.Errorf("%d cells of 2", len(cells))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
