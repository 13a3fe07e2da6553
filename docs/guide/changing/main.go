// Command changing holds five releases of one program, which docs/guide/changing.md deploys one
// after the other. $RELEASE chooses one.
package main

import (
	"context"
	"fmt"
	"os"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
)

var (
	name     = text("name")
	fullName = text("full_name") // replaces name: release 3 fills it
	greeting = text("greeting")
	initial  = text("initial")
	visit    = text("visit") // the last visit; changing.md lets it expire
)

func text(column string) percolator.TypedColumn[string] {
	return percolator.Typed(percolator.Column{Table: "people", Name: column}, percolator.Text[string]())
}

// A release has the observers and the columns of one release of the program.
type release struct {
	register func(*percolator.Registry)
	writes   []percolator.TypedColumn[string] // by save
	reads    percolator.TypedColumn[string]   // by show
}

var releases = map[string]release{
	"1": {first, []percolator.TypedColumn[string]{name}, name},
	"2": {split, []percolator.TypedColumn[string]{name}, name},
	"3": {writeBoth, []percolator.TypedColumn[string]{name, fullName}, name},
	"4": {readNew, []percolator.TypedColumn[string]{name, fullName}, fullName},
	"5": {readNew, []percolator.TypedColumn[string]{fullName}, fullName},
}

func main() {
	r, ok := releases[os.Getenv("RELEASE")]
	if !ok {
		fmt.Fprintln(os.Stderr, "changing: set RELEASE to 1, 2, 3, 4 or 5")
		os.Exit(2)
	}
	app.Main(r.register,
		app.Command("save ROW NAME", "Save a person's name", func(ctx context.Context, call *app.Invocation) error {
			db, err := call.DB(ctx)
			if err != nil {
				return err
			}
			return r.save(ctx, db, call.Args[0], call.Args[1])
		}))
}

// save writes a name to all columns that the release writes, in one transaction.
func (r release) save(ctx context.Context, db *percolator.DB, row, who string) error {
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, column := range r.writes {
			column.Set(tx, row, who)
		}
		return nil
	})
}

// first is release 1: one observer, which writes both the greeting and the initial.
func first(r *percolator.Registry) {
	r.Strong("card", name.Column, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		who, ok, err := name.Get(ctx, tx, n.Row)
		put(tx, n.Row, greeting, "Hello, "+who+"!", ok)
		put(tx, n.Row, initial, fmt.Sprintf("%.1s", who), ok)
		return err
	})
}

// split is release 2: a second observer of the column writes the initial, and the first one writes
// another greeting than before.
func split(r *percolator.Registry) {
	r.Strong("card", name.Column, greet(name))
	r.Strong("initial", name.Column, abbreviate(name))
}

// writeBoth is release 3: rename fills the new column for rows that release 1 or 2 has written.
func writeBoth(r *percolator.Registry) {
	split(r)
	r.Strong("rename", name.Column, rename)
}

// readNew is releases 4 and 5: the observers of the new column have new names, since a name stands for
// one column. Their functions are the same.
func readNew(r *percolator.Registry) {
	r.Strong("card-full", fullName.Column, greet(fullName))
	r.Strong("initial-full", fullName.Column, abbreviate(fullName))
}

// greet returns an observer that reads a name from a column, and writes the greeting.
func greet(from percolator.TypedColumn[string]) percolator.ObserverFunc {
	return func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		who, ok, err := from.Get(ctx, tx, n.Row)
		put(tx, n.Row, greeting, "Good morning, "+who+"!", ok)
		return err
	}
}

// abbreviate returns an observer that reads a name from a column, and writes the initial.
func abbreviate(from percolator.TypedColumn[string]) percolator.ObserverFunc {
	return func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		who, ok, err := from.Get(ctx, tx, n.Row)
		put(tx, n.Row, initial, fmt.Sprintf("%.1s", who), ok)
		return err
	}
}

// rename copies the old column to the new one, deletions included.
func rename(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	who, ok, err := name.Get(ctx, tx, n.Row)
	put(tx, n.Row, fullName, who, ok)
	return err
}

// put writes value if ok is set, and deletes the cell otherwise.
func put(tx *percolator.Tx, row string, to percolator.TypedColumn[string], value string, ok bool) {
	if ok {
		to.Set(tx, row, value)
	} else {
		to.Delete(tx, row)
	}
}
