package index

import (
	"context"

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

// observers are all of them, in the order of the pipeline. Those that go over a hot spot
// run on few workers: while they lag, notifications collapse (§2.4), and one run serves
// many. What follows from ranks runs on few as well: while ranks still change, most of it
// would be for nothing. Rank itself collapses because all that is linked to waits in one
// queue; on fewer workers it did not run less often, but shared fewer syncs.
func observers() []observer {
	return []observer{
		{"process", schema.Pages(schema.Raw), false, process, 64},
		{"refile", schema.Pages(schema.Refile), true, refile, 64},
		{"resolve", schema.Pages(schema.Resolve), true, resolve, 64},
		{"elect", schema.Clusters(schema.Elect), true, elect, 4},
		{"announce", schema.Clusters(schema.Elected), false, announce, 8},
		{"relink", schema.Pages(schema.Canon), false, relink, 8},
		{"invert", schema.Pages(schema.Links), false, invert, 64},
		{"reinvert", schema.Pages(schema.Reinvert), true, invert, 32},
		{"rank", schema.Pages(schema.Rerank), true, rank, 32},
		{"publish", schema.Pages(schema.Publish), true, publish, 8},
	}
}

// Register registers the tables and observers of the web index. It is called once per
// registry.
func Register(r *percolator.Registry) {
	for _, name := range schema.Tables() {
		r.Table(percolator.TableSpec{Name: name})
	}
	for _, o := range observers() {
		fn := func(ctx context.Context, t *percolator.Tx, n percolator.Notification) error {
			return o.run(ctx, tx{t}, n.Row)
		}
		register := r.Strong
		if o.weak {
			register = r.Weak
		}
		register(o.name, o.column, fn, percolator.Concurrency(o.concurrency))
	}
}
