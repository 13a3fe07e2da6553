package observer_test

import (
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/test/workload"
)

// BenchmarkRuns measures one change and one run of a strong observer that writes one cell, all in
// memory: the cost of hinter, lockd, dispatcher and invocation on top of two small transactions.
func BenchmarkRuns(b *testing.B) {
	work := workload.Counting{Rows: b.N}
	n := notifytest.Start(b, notifytest.NodeConfig{
		Cluster: notifytest.NewCluster(), Scanners: 4,
		Register: func(r *percolator.Registry) { work.Register(r, percolator.Concurrency(64)) },
		Observer: func(c *observer.Config) { c.Queue = 1 << 16 },
	})
	b.ResetTimer()
	if err := work.Load(b.Context(), n.DB); err != nil {
		b.Fatal(err)
	}
	if err := n.DB.WaitIdle(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	s := n.Stats("counting")
	b.ReportMetric(1000*s.Latency.Quantile(0.5), "p50-ms")
	b.ReportMetric(float64(s.Skipped)/float64(b.N), "skipped/op")
	if s.Commits != uint64(b.N) {
		b.Errorf("%d commits of %d", s.Commits, b.N)
	}
}
