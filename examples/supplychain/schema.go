package main

import (
	"context"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/recipes/closure"
	"github.com/percolator-go/percolator/tuple"
)

// This file has the tables and the observers. They hold no state but the tables'.

// Package is what is known of a package, in the newest version that was loaded.
type Package struct {
	Version  string   `json:"version"`
	Depends  []string `json:"depends,omitempty"`  // names, all alternatives among them
	Provides []string `json:"provides,omitempty"` // names
}

// The verdicts on an advisory.
const (
	affected = "affected"
	fixed    = "fixed"
	absent   = "no such package"
)

var (
	// packages holds what was loaded: rows are names.
	packages = percolator.Typed(percolator.Column{Table: "packages", Name: "package"},
		percolator.JSON[Package]())
	// linked are the edges of the package that the graph has now.
	linked = percolator.Typed(percolator.Column{Table: "packages", Name: "linked"},
		percolator.JSON[[]edge]())

	// provide notifies that there is a package that provides a name: rows are names.
	provide = percolator.Column{Table: "packages", Name: "provide"}

	// advisories holds the version in which an advisory is fixed, empty if in none: rows
	// are tuples of the package and the advisory.
	advisories = percolator.Typed(percolator.Column{Table: "advisories", Name: "fixed"},
		percolator.Text[string]())
	verdicts = percolator.Typed(percolator.Column{Table: "advisories", Name: "verdict"},
		percolator.Text[string]())
	// judge notifies that a package, or an advisory on it, has changed: rows are packages.
	judge = percolator.Column{Table: "advisories", Name: "judge"}

	// affects is the graph of names, from each to those that depend on it. Advisories are
	// its marks.
	affects = closure.New(closure.Config{Name: "affects"})
)

// register adds the observers and tables.
func register(r *percolator.Registry) {
	r.StrongBatch("link", packages.Column, link)
	r.WeakBatch("provide", provide, linkProvided)
	r.WeakBatch("judge", judge, judgeAll)
	affects.Register(r)
}

// edge is an edge of the graph: its source and its target.
type edge [2]string

// provided is the node between the packages that provide a name and the name. So an edge
// to the name is always of the package that depends, and none has two owners.
func provided(name string) string { return "provided:" + name }

// edges are those that a package is the reason of, in order, each once.
func (p Package) edges(name string) []edge {
	var all []edge
	for _, d := range p.Depends {
		all = append(all, edge{d, name})
	}
	for _, v := range p.Provides {
		all = append(all, edge{name, provided(v)})
	}
	slices.SortFunc(all, func(a, b edge) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(all)
}

// link brings the graph up to packages that have changed.
func link(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	names := make([]string, len(changes))
	for i, n := range changes {
		names[i] = n.Row
	}
	cells, err := packages.GetMulti(ctx, tx, names...)
	if err != nil {
		return err
	}
	now := map[string]Package{}
	for _, c := range cells {
		now[c.Row] = c.Value
	}
	before, err := linked.GetMulti(ctx, tx, names...)
	if err != nil {
		return err
	}
	old := map[string][]edge{}
	for _, c := range before {
		old[c.Row] = c.Value
	}
	for _, name := range names {
		relink(tx, name, old[name], now[name])
		tx.Notify(name, judge)
	}
	return nil
}

// relink replaces the edges of one package.
func relink(tx *percolator.Tx, name string, old []edge, p Package) {
	edges := p.edges(name)
	for _, e := range old {
		if !slices.Contains(edges, e) {
			affects.DeleteEdge(tx, e[0], e[1])
		}
	}
	for _, e := range edges {
		if !slices.Contains(old, e) {
			affects.AddEdge(tx, e[0], e[1])
		}
	}
	for _, v := range p.Provides {
		tx.Notify(v, provide)
	}
	linked.Set(tx, name, edges)
}

// linkProvided adds the edges to names from their nodes. They stay for good: nothing
// reaches the node of a name that no package provides any more. If link added them, the
// packages that provide one name would conflict over its edge.
func linkProvided(_ context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	for _, n := range changes {
		affects.AddEdge(tx, provided(n.Row), n.Row)
	}
	return nil
}

// advise publishes an advisory on a package, or changes the version that fixes it.
func advise(tx *percolator.Tx, id, name, version string) {
	advisories.Set(tx, tuple.Pack(name, id), version)
	tx.Notify(name, judge)
}

// withdraw takes an advisory on a package back.
func withdraw(tx *percolator.Tx, id, name string) {
	advisories.Delete(tx, tuple.Pack(name, id))
	tx.Notify(name, judge)
}

// judgeAll decides which advisories hold for the packages, and marks or unmarks them.
func judgeAll(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	names := make([]string, len(changes))
	for i, n := range changes {
		names[i] = n.Row
	}
	cells, err := packages.GetMulti(ctx, tx, names...)
	if err != nil {
		return err
	}
	versions := map[string]string{}
	for _, c := range cells {
		versions[c.Row] = c.Value.Version
	}
	for _, name := range names {
		if err := judgeOne(ctx, tx, name, versions[name]); err != nil {
			return err
		}
	}
	return nil
}

// judgeOne decides on all advisories of one package. It writes each verdict also if it is
// the same: so two runs that saw different versions conflict, and the later one holds.
func judgeOne(ctx context.Context, tx *percolator.Tx, name, version string) error {
	rows := percolator.Rows(advisories.Column.Table).Prefix(tuple.Prefix(name))
	published := map[string]string{}
	var ids []string // also of those that were withdrawn and have a verdict yet
	for cell, err := range tx.Scan(ctx, rows, advisories.Column, verdicts.Column) {
		if err != nil {
			return err
		}
		var id string
		if err := tuple.Unpack(cell.Row, &name, &id); err != nil {
			return err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		if cell.Column == advisories.Column {
			published[id] = string(cell.Value)
		}
	}
	for _, id := range ids {
		row := tuple.Pack(name, id)
		fixedIn, ok := published[id]
		if !ok {
			verdicts.Delete(tx, row)
			affects.Unmark(tx, id, name)
			continue
		}
		verdict := verdictOn(version, fixedIn)
		verdicts.Set(tx, row, verdict)
		if verdict == affected {
			affects.Mark(tx, id, name)
		} else {
			affects.Unmark(tx, id, name)
		}
	}
	return nil
}

// verdictOn decides for a package in a version, which is empty if there is none.
func verdictOn(version, fixedIn string) string {
	switch {
	case version == "":
		return absent
	case fixedIn == "" || compareVersions(version, fixedIn) < 0:
		return affected
	default:
		return fixed
	}
}
