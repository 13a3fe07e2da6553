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
	// linked are the edges that the graph has now and the package is a reason of.
	linked = percolator.Typed(percolator.Column{Table: "packages", Name: "linked"},
		percolator.JSON[[]edge]())

	// advisories holds the version in which an advisory is fixed, empty if in none: rows
	// are tuples of the package and the advisory.
	advisories = percolator.Typed(percolator.Column{Table: "advisories", Name: "fixed"},
		percolator.Text[string]())
	verdicts = percolator.Typed(percolator.Column{Table: "advisories", Name: "verdict"},
		percolator.Text[string]())
	// advised says that there was an advisory on a package once: rows are packages. Without,
	// a package that has changed need not be judged.
	advised = percolator.Column{Table: "packages", Name: "advised"}
	// judge notifies that a package, or an advisory on it, has changed: rows are packages.
	judge = percolator.Column{Table: "advisories", Name: "judge"}

	// affects is the graph of names, from each to those that depend on it. Advisories are
	// its marks.
	affects = closure.New(closure.Config{Name: "affects"})
)

// register adds the observers and tables.
func register(r *percolator.Registry) {
	r.StrongBatch("link", packages.Column, link)
	r.WeakBatch("judge", judge, judgeAll)
	affects.Register(r)
}

// edge is an edge of the graph: its source and its target.
type edge = [2]string

// edges are those that a package is a reason of, in order, each once: from what it depends on
// to itself, and from itself to what it provides.
func (p Package) edges(name string) []edge {
	var all []edge
	for _, d := range p.Depends {
		all = append(all, edge{d, name})
	}
	for _, v := range p.Provides {
		all = append(all, edge{name, v})
	}
	all = slices.DeleteFunc(all, func(e edge) bool { return e[0] == e[1] })
	slices.SortFunc(all, func(a, b edge) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(all)
}

// link brings the graph up to packages that have changed.
func link(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
	names := make([]string, len(changes))
	for i, n := range changes {
		names[i] = n.Row
	}
	now, err := packagesOf(ctx, tx, names)
	if err != nil {
		return err
	}
	old, err := linkedOf(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := relink(ctx, tx, name, old[name], now[name]); err != nil {
			return err
		}
	}
	return judgeAgain(ctx, tx, names)
}

// relink replaces the edges of one package.
func relink(ctx context.Context, tx *percolator.Tx, name string, old []edge, p Package) error {
	edges := p.edges(name)
	without := func(from, which []edge) []edge {
		return slices.DeleteFunc(slices.Clone(from), func(e edge) bool {
			return slices.Contains(which, e)
		})
	}
	added, gone := without(edges, old), without(old, edges)
	// An edge has two packages as its reasons if one provides the name of the other, which
	// depends on it. Then it is written again, so that of two that give it up at once one
	// conflicts, and sees that the other has.
	others := make([]string, len(gone))
	for i, e := range gone {
		others[i] = e[0]
		if e[0] == name {
			others[i] = e[1]
		}
	}
	held, err := linkedOf(ctx, tx, others)
	if err != nil {
		return err
	}
	var deleted []edge
	for i, e := range gone {
		if slices.Contains(held[others[i]], e) {
			added = append(added, e)
		} else {
			deleted = append(deleted, e)
		}
	}
	affects.AddEdges(tx, added...)
	affects.DeleteEdges(tx, deleted...)
	linked.Set(tx, name, edges)
	return nil
}

// packagesOf reads packages.
func packagesOf(ctx context.Context, tx *percolator.Tx, names []string) (map[string]Package,
	error) {
	cells, err := packages.GetMulti(ctx, tx, names...)
	found := map[string]Package{}
	for _, c := range cells {
		found[c.Row] = c.Value
	}
	return found, err
}

// linkedOf reads the edges that packages hold.
func linkedOf(ctx context.Context, tx *percolator.Tx, names []string) (map[string][]edge, error) {
	cells, err := linked.GetMulti(ctx, tx, names...)
	found := map[string][]edge{}
	for _, c := range cells {
		found[c.Row] = c.Value
	}
	return found, err
}

// judgeAgain has those of the packages judged on which there are advisories. Of one that is
// published at this moment the publisher notifies, and the packages have changed before.
func judgeAgain(ctx context.Context, tx *percolator.Tx, names []string) error {
	keys := make([]percolator.CellKey, len(names))
	for i, name := range names {
		keys[i] = percolator.CellKey{Row: name, Column: advised}
	}
	cells, err := tx.GetMulti(ctx, keys...)
	for _, c := range cells {
		tx.Notify(c.Row, judge)
	}
	return err
}

// advise publishes an advisory on a package, or changes the version that fixes it.
func advise(tx *percolator.Tx, id, name, version string) {
	advisories.Set(tx, tuple.Pack(name, id), version)
	tx.Set(name, advised, nil)
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
	now, err := packagesOf(ctx, tx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := judgeOne(ctx, tx, name, now[name].Version); err != nil {
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
