package main

import (
	"context"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/recipes/closure"
	"github.com/percolator-go/percolator/tuple"
)

// Tables and observers. The observers keep no state outside the tables.

// Package describes the newest loaded version of a package.
type Package struct {
	Version  string   `json:"version"`
	Depends  []string `json:"depends,omitempty"`  // names, including alternatives
	Provides []string `json:"provides,omitempty"` // names
}

// The verdicts on an advisory.
const (
	affected = "affected"
	fixed    = "fixed"
	absent   = "no such package"
)

var (
	// packages has the loaded packages, by name.
	packages = percolator.Typed(percolator.Column{Table: "packages", Name: "package"},
		percolator.JSON[Package]())
	// linked has the edges that the package currently contributes to the graph, by package.
	linked = percolator.Typed(percolator.Column{Table: "packages", Name: "linked"},
		percolator.JSON[[]edge]())

	// advisories has the version that fixes an advisory, empty if there is none; a row is a
	// tuple of package and advisory.
	advisories = percolator.Typed(percolator.Column{Table: "advisories", Name: "fixed"},
		percolator.Text[string]())
	verdicts = percolator.Typed(percolator.Column{Table: "advisories", Name: "verdict"},
		percolator.Text[string]())
	// advised exists for packages that have ever had an advisory; changes of other packages
	// need no verdict.
	advised = percolator.Column{Table: "packages", Name: "advised"}
	// judge notifies of a change of a package or of its advisories, by package.
	judge = percolator.Column{Table: "advisories", Name: "judge"}

	// affects is the graph with an edge from each name to those that depend on it; its marks
	// are the advisories.
	affects = closure.New(closure.Config{Name: "affects"})
)

// register registers the observers and tables.
func register(r *percolator.Registry) {
	r.StrongBatch("link", packages.Column, link)
	r.WeakBatch("judge", judge, judgeAll)
	affects.Register(r)
}

// edge is an edge of the graph: its source and its target.
type edge = [2]string

// edges returns the edges that a package contributes, sorted and distinct: from its dependencies
// to it, and from it to the names that it provides.
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

// link updates the graph for changed packages.
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
	// Two packages contribute the same edge if one provides the name of the other, which depends
	// on it. The edge is then written again, so that of two concurrent removals one conflicts and
	// sees the other.
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

// packagesOf reads the packages of the names.
func packagesOf(ctx context.Context, tx *percolator.Tx, names []string) (map[string]Package,
	error) {
	cells, err := packages.GetMulti(ctx, tx, names...)
	found := map[string]Package{}
	for _, c := range cells {
		found[c.Row] = c.Value
	}
	return found, err
}

// linkedOf reads the edges that the packages contribute.
func linkedOf(ctx context.Context, tx *percolator.Tx, names []string) (map[string][]edge, error) {
	cells, err := linked.GetMulti(ctx, tx, names...)
	found := map[string][]edge{}
	for _, c := range cells {
		found[c.Row] = c.Value
	}
	return found, err
}

// judgeAgain notifies judge of those of the packages that have ever had an advisory. It may miss an
// advisory that is being published, whose transaction notifies judge itself.
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

// withdraw withdraws an advisory on a package.
func withdraw(tx *percolator.Tx, id, name string) {
	advisories.Delete(tx, tuple.Pack(name, id))
	tx.Notify(name, judge)
}

// judgeAll determines which advisories affect the packages, and marks or unmarks them.
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

// judgeOne determines the verdicts on all advisories of one package. It writes them even if
// unchanged, so that runs that saw different versions conflict and the later one wins.
func judgeOne(ctx context.Context, tx *percolator.Tx, name, version string) error {
	rows := percolator.Rows(advisories.Column.Table).Prefix(tuple.Prefix(name))
	published := map[string]string{}
	var ids []string // including withdrawn advisories that still have a verdict
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

// verdictOn returns the verdict on a package with the version, which is empty without a package.
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
