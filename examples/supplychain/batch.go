package main

import (
	"context"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/recipes/closure"
	"github.com/percolator-go/percolator/tuple"
)

// batch is what a second computation finds, from packages and advisories alone.
type batch struct {
	dependents map[string][]string
	seeds      map[string][]string // of advisories
	verdicts   map[string]string   // by row
}

// compute reads packages and advisories, and determines the verdicts.
func compute(ctx context.Context, r percolator.Reader) (*batch, error) {
	b := &batch{
		dependents: map[string][]string{}, seeds: map[string][]string{}, verdicts: map[string]string{},
	}
	versions := map[string]string{}
	for p, err := range packages.Scan(ctx, r, percolator.Rows(packages.Column.Table)) {
		if err != nil {
			return nil, err
		}
		versions[p.Row] = p.Value.Version
		for _, d := range p.Value.Depends {
			b.dependents[d] = append(b.dependents[d], p.Row)
		}
		b.dependents[p.Row] = append(b.dependents[p.Row], p.Value.Provides...)
	}
	for a, err := range advisories.Scan(ctx, r, percolator.Rows(advisories.Column.Table)) {
		if err != nil {
			return nil, err
		}
		var name, id string
		if err := tuple.Unpack(a.Row, &name, &id); err != nil {
			return nil, err
		}
		b.verdicts[a.Row] = verdictOn(versions[name], a.Value)
		if b.verdicts[a.Row] == affected {
			b.seeds[id] = append(b.seeds[id], name)
		}
	}
	return b, nil
}

// reach returns the packages reachable from the seeds.
func (b *batch) reach(seeds ...string) map[string]bool {
	found := map[string]bool{}
	for waiting := slices.Clone(seeds); len(waiting) > 0; {
		name := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		if !found[name] {
			found[name] = true
			waiting = append(waiting, b.dependents[name]...)
		}
	}
	return found
}

// verify compares the observers' results with a batch computation in one snapshot, name by name:
// the verdicts, the edges, and the names that each advisory reaches, withdrawn ones included. It
// returns the number of compared verdicts, and that of compared names over all advisories.
func verify(ctx context.Context, r percolator.Reader) (advised, names int, err error) {
	b, err := compute(ctx, r)
	if err != nil {
		return 0, 0, err
	}
	for v, err := range verdicts.Scan(ctx, r, percolator.Rows(verdicts.Column.Table)) {
		if err != nil {
			return 0, 0, err
		}
		if b.verdicts[v.Row] != v.Value {
			return 0, 0, fmt.Errorf("the verdict on %q is %q, by the batch %q: %w", v.Row, v.Value,
				b.verdicts[v.Row], errDiffers)
		}
		advised++
	}
	if advised != len(b.verdicts) {
		return 0, 0, fmt.Errorf("the observers have %d verdicts, the batch %d: %w", advised, len(b.verdicts),
			errDiffers)
	}
	reached := map[string]map[string]closure.Reached{} // by advisory; also those that only b has
	for id := range b.seeds {
		reached[id] = nil
	}
	for found, err := range affects.All(ctx, r) {
		if err != nil {
			return 0, 0, err
		}
		if reached[found.Mark] == nil {
			reached[found.Mark] = map[string]closure.Reached{}
		}
		reached[found.Mark][found.Node] = found
	}
	edges := map[edge]bool{}
	for from, all := range b.dependents {
		for _, to := range all {
			edges[edge{from, to}] = true
		}
	}
	for id, got := range reached {
		if err := b.compare(id, got, edges); err != nil {
			return 0, 0, err
		}
		names += len(got)
	}
	return advised, names, nil
}

// compare compares the names that the observers found for an advisory with a search of b's graph,
// and checks that each name was reached through one that is nearer to a package of the advisory.
func (b *batch) compare(id string, got map[string]closure.Reached, edges map[edge]bool) error {
	want := b.reach(b.seeds[id]...)
	for name, found := range got {
		above, ok := got[found.Parent]
		path := ok && above.Depth < found.Depth && edges[edge{found.Parent, name}]
		if found.Depth == 0 {
			path = slices.Contains(b.seeds[id], name)
		}
		if !want[name] || !path {
			return fmt.Errorf("%s: the observers reach %s through %q; the batch reaches it: %v: %w", id, name,
				found.Parent, want[name], errDiffers)
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: observers found %d names, the batch %d: %w", id, len(got), len(want),
			errDiffers)
	}
	return nil
}
