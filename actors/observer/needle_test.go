package observer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notifytest"
)

// TestOneDirtyRowAmongMany: with hints off, scans find one dirty row within seconds among very many
// clean and some thousand parked ones in many tablets.
func TestOneDirtyRowAmongMany(t *testing.T) {
	rows := 200_000
	if testing.Short() {
		rows = 20_000
	}
	cluster := notifytest.NewCluster()
	n := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, Scanners: 8, Hints: scanner.HintsOff,
		Register: func(r *percolator.Registry) {
			r.Strong("reader", raw, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return nil
			})
		},
	})
	name := func(i int) string { return fmt.Sprintf("http://host%03d.example/%06d", i%200, i) }
	for i := range 64 {
		if err := n.Process.SplitTablet(t.Context(), table, name(i*3)); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Fill(n.Tables[table], raw.Name, rows, name)
	for i := range 5000 {
		cluster.Mark(n.Cell(table, name(i*3), raw.Name),
			mvcc.Notify{TS: 1, ParkedTS: 2, Attempts: 9})
	}
	for _, i := range []int{rows / 3, rows - 1, 0} {
		before, began := n.Stats("reader").Commits, time.Now()
		set(t, n, name(i), raw)
		notifytest.Eventually(t, time.Minute, "the dirty row is found", func() bool {
			return n.Stats("reader").Commits == before+1
		})
		t.Logf("found after %v", time.Since(began).Round(time.Millisecond))
	}
}
