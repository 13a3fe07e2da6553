package closure_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/recipes/closure"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

// benchmarked is the closure used by BenchmarkSettle.
var benchmarked = closure.New(closure.Config{Name: "graph"})

// TestMain runs this program as a node of BenchmarkSettle's cluster if it was started as one.
func TestMain(m *testing.M) {
	cluster.Main(func(r *percolator.Registry) { benchmarked.Register(r) })
	os.Exit(m.Run())
}

// BenchmarkSettle adds and deletes the edge from a group to a folder: the given number of users,
// each a mark, reach the group, and the given number of documents are in the folder. ms/change is
// the time from the commit until the change has settled, rows/s its added or removed rows.
func BenchmarkSettle(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, size := range [][2]int{
			{90, 391}, {1, 35_190}, {35_190, 1}, // as many rows as in a large change
			{10, 471}, {1, 4710}, {4710, 1},
		} {
			b.Run(fmt.Sprintf("nodes=%d/users=%d/documents=%d", nodes, size[0], size[1]),
				func(b *testing.B) { settle(b, nodes, size[0], size[1]) })
		}
	}
}

func settle(b *testing.B, nodes, users, documents int) {
	c := benchmarked
	db := open(b, c, nodes)
	fill(b, db, users, func(tx *percolator.Tx, i int) {
		c.Mark(tx, fmt.Sprintf("user%d", i), "group")
	})
	fill(b, db, documents, func(tx *percolator.Tx, i int) {
		c.AddEdge(tx, "folder", fmt.Sprintf("document%d", i))
	})
	idle(b, db)
	add := func() {
		do(b, db, func(tx *percolator.Tx) { c.AddEdge(tx, "group", "folder") })
		idle(b, db)
	}
	remove := func() {
		do(b, db, func(tx *percolator.Tx) { c.DeleteEdge(tx, "group", "folder") })
		idle(b, db)
	}
	b.Run("add", func(b *testing.B) { measure(b, users*(documents+1), add, remove) })
	add()
	b.Run("remove", func(b *testing.B) { measure(b, users*(documents+1), remove, add) })
}

// measure measures a change of n rows, and undoes it each time.
func measure(b *testing.B, rows int, change, undo func()) {
	for b.Loop() {
		change()
		b.StopTimer()
		undo()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/change")
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(0, "ns/op")
}

// open opens a node in this process, or starts several processes, on disk.
func open(b *testing.B, c *closure.Closure, nodes int) *percolator.DB {
	b.Helper()
	if nodes > 1 {
		db, err := clustertest.Start(b.Context(), b, cluster.Config{Nodes: nodes}).Dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		clustertest.Replicated(b.Context(), b, db, 2) // meta and the closure's table
		return db
	}
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = b.TempDir(), "127.0.0.1:0", "", true
	cfg.Observers = func(r *percolator.Registry) { c.Register(r) }
	n, err := node.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return n.DB()
}

func do(b *testing.B, db *percolator.DB, fn func(tx *percolator.Tx)) {
	b.Helper()
	if err := db.Transact(b.Context(), func(_ context.Context, tx *percolator.Tx) error {
		fn(tx)
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

func idle(b *testing.B, db *percolator.DB) {
	b.Helper()
	if err := db.WaitIdle(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// fill calls fn for each number below n, in transactions of 500.
func fill(b *testing.B, db *percolator.DB, n int, fn func(tx *percolator.Tx, i int)) {
	b.Helper()
	for first := 0; first < n; first += 500 {
		do(b, db, func(tx *percolator.Tx) {
			for i := first; i < min(first+500, n); i++ {
				fn(tx, i)
			}
		})
	}
}
