package tpce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// Measurements returns Figure 9, its comparison with PostgreSQL, and Figure 10.
func Measurements() []harness.Measurement {
	return []harness.Measurement{
		{
			Name: "figure9", Title: "TPC-E-like transactions as CPUs are added (Figure 9)",
			Budget: 4 * time.Minute, Run: figure9,
		},
		{
			Name: "tpce", Title: "CPU of a TPC-E-like transaction, and where it goes (§3.3, §5)",
			Budget: 200 * time.Second, Run: overhead,
		},
		{
			Name: "figure10", Title: "A third of the servers killed (Figure 10)",
			Budget: 150 * time.Second, Run: figure10,
		},
	}
}

// nodeCPUs is the quota of a node, in CPUs: eight nodes and the load generator fit on two cores.
const nodeCPUs = 0.1

// callersEach is the number of concurrent callers for each node: enough to use its quota.
const callersEach = 16

// layouts are the clusters of Figure 9.
var layouts = []layout{
	{nodes: 1, replicas: 1}, {nodes: 2, replicas: 1}, {nodes: 4, replicas: 1}, {nodes: 8, replicas: 1},
}

// scaling is the table, and the plot, of Figure 9.
const scaling = "scaling"

func figure9(ctx context.Context, r *harness.Run) error {
	// One round: with a minute of rest between two moves of a tablet, eight nodes need more than a
	// minute to spread their tablets.
	measured, sizes := 8*time.Second, layouts
	if r.Smoke {
		measured, sizes = time.Second, layouts[:1]
	}
	if !canLimit() {
		r.Note("Skipped: CPU quotas need root and version 1 of cgroups.")
		r.Logf("figure9 skipped: CPU quotas need root and version 1 of cgroups")
		return nil
	}
	r.Axes(scaling, "CPUs used by the nodes", "transactions/s", false, false)
	var points [][2]float64
	for _, l := range sizes {
		l.cpus = nodeCPUs
		f, err := scale(ctx, r, l, measured)
		if err != nil {
			return fmt.Errorf("%v: %w", l, err)
		}
		points = append(points, [2]float64{f.cpus, f.perSecond})
		r.Point(scaling, "measured", f.cpus, f.perSecond)
		row := fmt.Sprintf("%d nodes", l.nodes)
		r.Value(scaling, row, "CPUs given", l.cpus*float64(l.nodes))
		r.Value(scaling, row, "CPUs used", f.cpus)
		r.Value(scaling, row, "transactions/s", f.perSecond)
		r.Value(scaling, row, "trade-results/s", f.executed)
		r.Value(scaling, row, "µs CPU of the nodes", micros(f.server))
		r.Value(scaling, row, "µs CPU of the client", micros(f.client))
		r.Ratio(scaling, row, points[0][0]/points[0][1]*f.perSecond/f.cpus, "0.85–1.15")
	}
	r.Note("One replica of each tablet. Each node has %g CPUs by a quota, 500 customers and %d callers; the load generator runs outside, in one process. "+
		"The ratio is that of transactions per CPU second to one node's, where no message leaves the node; "+
		"from two nodes on, prices and the order book are mostly on other nodes.", nodeCPUs, callersEach)
	if r.Smoke {
		return nil
	}
	slope, intercept, residual := fit(points)
	for _, p := range points {
		r.Point(scaling, "linear fit", p[0], intercept+slope*p[0])
	}
	r.Value("linear fit", "1 to 8 nodes", "transactions per CPU second", slope)
	r.Value("linear fit", "1 to 8 nodes", "transactions/s without CPU", intercept)
	r.Value("linear fit", "1 to 8 nodes", "% largest residual", 100*residual)
	r.Paper("linear fit", "1 to 8 nodes", "linear from 11 to 15,000 cores")
	return nil
}

// scale measures one cluster.
func scale(ctx context.Context, r *harness.Run, l layout, d time.Duration) (f driven, err error) {
	s, err := openNodes(ctx, r.Dir, l)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	e, err := s.prepare(ctx, newDataset(r.Seed, l.nodes))
	if err != nil {
		return f, err
	}
	if f, err = drive(ctx, e, callersEach*l.nodes, d/2, d, s.cpu); err != nil {
		return f, err
	}
	if err := s.release(); err != nil {
		return f, err
	}
	r.Logf("%v: %.0f transactions/s with %.2f CPUs", l, f.perSecond, f.cpus)
	return f, e.settleBooks(ctx)
}

// canLimit reports whether processes can be given CPU quotas.
func canLimit() bool {
	_, err := os.Stat("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
	return err == nil && os.Geteuid() == 0
}

// fit returns the line of least squares, and the largest distance of a point from it, as a part of
// the line's value there.
func fit(points [][2]float64) (slope, intercept, residual float64) {
	var n, x, y, xx, xy float64
	for _, p := range points {
		n, x, y, xx, xy = n+1, x+p[0], y+p[1], xx+p[0]*p[0], xy+p[0]*p[1]
	}
	slope = (n*xy - x*y) / (n*xx - x*x)
	intercept = (y - slope*x) / n
	for _, p := range points {
		at := intercept + slope*p[0]
		residual = max(residual, math.Abs(p[1]-at)/at)
	}
	return slope, intercept, residual
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
