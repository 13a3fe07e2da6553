package index

import (
	"context"
	"sync/atomic"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// observer is one of the index's observers.
type observer struct {
	name        string
	column      percolator.Column
	weak        bool
	run         func(ctx context.Context, t Tx, row string) error
	concurrency int
}

// observers are all of them, in the order of the pipeline. Those that count over a hot spot run on few workers: while
// they lag, notifications collapse (§2.4), and one run serves many.
func observers() []observer {
	return []observer{
		{"process", schema.Pages(schema.Raw), false, process, 16},
		{"refile", schema.Pages(schema.Refile), true, refile, 16},
		{"resolve", schema.Pages(schema.Resolve), true, resolve, 16},
		{"elect", schema.Clusters(schema.Elect), true, elect, 2},
		{"announce", schema.Clusters(schema.Elected), false, announce, 4},
		{"relink", schema.Pages(schema.Canon), false, relink, 4},
		{"invert", schema.Pages(schema.Links), false, invert, 16},
		{"reinvert", schema.Pages(schema.Reinvert), true, invert, 8},
		{"rank", schema.Pages(schema.Rerank), true, rank, 2},
	}
}

// Runs counts the runs of each observer in this process, those included that conflicted and ran again. It may be read
// and counted concurrently.
type Runs struct {
	names  []string
	counts []atomic.Int64
}

// Count is the number of runs of one observer.
type Count struct {
	Observer string
	Runs     int64
}

// Counts are the numbers now, in the order of the pipeline.
func (r *Runs) Counts() []Count {
	counts := make([]Count, len(r.names))
	for i, name := range r.names {
		counts[i] = Count{name, r.counts[i].Load()}
	}
	return counts
}

// Register registers the observers and returns their counters. It is called once per registry.
func Register(r *percolator.Registry) *Runs {
	all := observers()
	runs := &Runs{counts: make([]atomic.Int64, len(all))}
	for i, o := range all {
		runs.names = append(runs.names, o.name)
		count := &runs.counts[i]
		fn := func(ctx context.Context, t *percolator.Tx, n percolator.Notification) error {
			count.Add(1)
			return o.run(ctx, tx{t}, n.Row)
		}
		register := r.Strong
		if o.weak {
			register = r.Weak
		}
		register(o.name, o.column, fn, percolator.Concurrency(o.concurrency))
	}
	return runs
}
