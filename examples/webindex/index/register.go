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
	concurrency int // transactions at once
	batch       int // rows in each, at most
}

// observers returns all observers, in the order of the pipeline. Observers that write contended
// rows have few workers: while they lag, notifications collapse (§2.4), and one run handles many.
// Observers of ranks have few workers too, because most of their runs would be superseded while
// ranks still change.
//
// All take small batches, since half of what a run costs is its transaction. A batch is
// several runs, each of which sees what those before it have written, and keeps the rules as
// if it were alone. Larger batches of rank and publish, which both write moved, conflict too often.
func observers() []observer {
	return []observer{
		{"process", schema.Pages(schema.Raw), false, process, 16, 8},
		{"refile", schema.Pages(schema.Refile), true, refile, 16, 8},
		{"resolve", schema.Pages(schema.Resolve), true, resolve, 16, 8},
		{"elect", schema.Clusters(schema.Elect), true, elect, 2, 8},
		{"announce", schema.Clusters(schema.Elected), false, announce, 4, 8},
		{"relink", schema.Pages(schema.Canon), false, relink, 4, 8},
		{"invert", schema.Pages(schema.Links), false, invert, 16, 8},
		{"reinvert", schema.Pages(schema.Reinvert), true, invert, 8, 8},
		{"rank", schema.Pages(schema.Rerank), true, rank, 4, 16},
		{"publish", schema.Pages(schema.Publish), true, publish, 2, 16},
	}
}

// Register registers the tables and observers of the web index. It is called once per
// registry.
func Register(r *percolator.Registry) {
	for _, name := range schema.Tables() {
		r.Table(percolator.TableSpec{Name: name})
	}
	for _, o := range observers() {
		register := r.StrongBatch
		if o.weak {
			register = r.WeakBatch
		}
		register(o.name, o.column, o.all, percolator.Concurrency(o.concurrency),
			percolator.Batch(o.batch))
	}
}

// all runs the observer for each row of a batch, in one transaction.
func (o observer) all(ctx context.Context, t *percolator.Tx,
	changes []percolator.Notification) error {
	for _, n := range changes {
		if err := o.run(ctx, tx{t}, n.Row); err != nil {
			return err
		}
	}
	return nil
}
