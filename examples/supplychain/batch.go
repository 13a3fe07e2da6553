package main

import (
	"context"
	"fmt"
	"maps"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// batch is the whole computation anew, from packages and advisories alone.
type batch struct {
	dependents map[string][]string
	seeds      map[string][]string // of advisories
}

// compute reads the inputs.
func compute(ctx context.Context, r percolator.Reader) (*batch, error) {
	b := &batch{dependents: map[string][]string{}, seeds: map[string][]string{}}
	versions := map[string]string{}
	for p, err := range packages.Scan(ctx, r, percolator.Rows(packages.Column.Table)) {
		if err != nil {
			return nil, err
		}
		versions[p.Row] = p.Value.Version
		for _, d := range p.Value.Depends {
			b.dependents[d] = append(b.dependents[d], p.Row)
		}
		for _, v := range p.Value.Provides {
			b.dependents[p.Row] = append(b.dependents[p.Row], provided(v))
			b.dependents[provided(v)] = []string{v}
		}
	}
	for a, err := range advisories.Scan(ctx, r, percolator.Rows(advisories.Column.Table)) {
		if err != nil {
			return nil, err
		}
		var name, id string
		if err := tuple.Unpack(a.Row, &name, &id); err != nil {
			return nil, err
		}
		if v := versions[name]; v != "" && (a.Value == "" || compareVersions(v, a.Value) < 0) {
			b.seeds[id] = append(b.seeds[id], name)
		}
	}
	return b, nil
}

// reach is all that the seeds reach.
func (b *batch) reach(seeds ...string) map[string]bool {
	found := map[string]bool{}
	for len(seeds) > 0 {
		name := seeds[len(seeds)-1]
		seeds = seeds[:len(seeds)-1]
		if !found[name] {
			found[name] = true
			seeds = append(seeds, b.dependents[name]...)
		}
	}
	return found
}

// verify compares what observers have made of the advisories that there are with a batch,
// in one snapshot. It counts what it has compared. It does not look for names that an
// advisory which was withdrawn has left behind.
func verify(ctx context.Context, r percolator.Reader) (advised, names int, err error) {
	b, err := compute(ctx, r)
	if err != nil {
		return 0, 0, err
	}
	published := map[string]bool{}
	for a, err := range advisories.Scan(ctx, r, percolator.Rows(advisories.Column.Table)) {
		if err != nil {
			return 0, 0, err
		}
		var name, id string
		if err := tuple.Unpack(a.Row, &name, &id); err != nil {
			return 0, 0, err
		}
		published[id] = true
	}
	for id := range published {
		got := map[string]bool{}
		for reached, err := range affects.Reached(ctx, r, id) {
			if err != nil {
				return 0, 0, err
			}
			got[reached.Node] = true
			if reached.Parent == "" {
				continue
			}
			path, err := affects.Path(ctx, r, id, reached.Node)
			if err != nil {
				return 0, 0, err
			}
			if len(path) < 2 {
				return 0, 0, fmt.Errorf("%s: no path to %s: %w", id, reached.Node, errDiffers)
			}
		}
		want := b.reach(b.seeds[id]...)
		if !maps.Equal(got, want) {
			return 0, 0, fmt.Errorf("%s: observers found %d names, the batch %d: %w", id, len(got),
				len(want), errDiffers)
		}
		names += len(got)
	}
	return len(published), names, nil
}
