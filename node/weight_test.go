package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// heavy is a transaction within all limits, in one tablet.
type heavy struct {
	name             string
	writes, notifies int
	row              string // fills a row; its end is overwritten with the row's number
	value            int
}

func (h heavy) rowOf(i int) string {
	tail := fmt.Sprintf("%s-%05d", h.name, i)
	return h.row[:len(h.row)-len(tail)] + tail
}

// TestHeavyTransactions: any transaction within the limits commits as a whole: many long rows with
// many long notifications, rows that take twice their length in the store, one write with many
// notifications, and random ones.
func TestHeavyTransactions(t *testing.T) {
	t.Parallel()
	weak := percolator.Column{Table: "t", Name: "weak"}
	n := open(t, "", func(cfg *node.Config) {
		nothing := func(context.Context, *percolator.Tx, percolator.Notification) error {
			return nil
		}
		cfg.Observers = func(r *percolator.Registry) { r.Weak("nothing", weak, nothing) }
	})
	db := dial(t, n)
	long, zeros := strings.Repeat("x", 4<<10), strings.Repeat("\x00", 4<<10)
	cases := []heavy{
		{"intents", 400, 1000, long, 10}, {"one", 1, 2500, long, 10},
		{"zeros", 600, 0, zeros, 10}, {"zeros", 600, 0, zeros, 10}, // the second creates history
		{"many", 6000, 0, zeros[:40], 1 << 10}, {"long", 3, 500, zeros, 4 << 20},
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 4 {
		row := []string{long, zeros}[rnd.IntN(2)][:64+rnd.IntN(4<<10-64)]
		name := fmt.Sprint("random", i)
		cases = append(cases, heavy{name, 1 + rnd.IntN(600), rnd.IntN(900), row, rnd.IntN(3 << 10)})
	}
	for _, h := range cases {
		// all of them take 30 s of CPU time under the race detector
		ctx := within(t, 2*time.Minute)
		value := make([]byte, h.value)
		if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := range h.writes {
				tx.Set(h.rowOf(i), cell, value)
			}
			for i := range h.notifies {
				tx.Notify(h.rowOf(i), weak)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", h.name, err)
			continue
		}
		// No lock of it is left: the secondaries' commits fit their messages too.
		if err := db.WaitIdle(ctx); err != nil {
			t.Fatalf("%s: %v", h.name, err)
		}
		if left := handle.Client(db).Stats().Secondaries; left > 0 {
			t.Errorf("%s: %d commits of secondaries failed", h.name, left)
		}
		keys := make([]percolator.CellKey, h.writes)
		for i := range keys {
			keys[i] = percolator.CellKey{Row: h.rowOf(i), Column: cell}
		}
		s, err := db.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := s.GetMulti(ctx, keys...)
		if err != nil || len(cells) != h.writes {
			t.Errorf("%s: %d of %d rows are there: %v", h.name, len(cells), h.writes, err)
		}
		_ = s.Close()
	}
}
