// Command roster greets people, and lists the greetings of each team.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
)

// A row of people is TEAM/PERSON, a row of teams is TEAM.
var (
	name     = text("people", "name")
	greeting = text("people", "greeting")
	changed  = percolator.Column{Table: "teams", Name: "changed"}
	roster   = percolator.Typed(percolator.Column{Table: "teams", Name: "roster"},
		percolator.JSON[[]string]())
)

func text(table, column string) percolator.TypedColumn[string] {
	return percolator.Typed(percolator.Column{Table: table, Name: column}, percolator.Text[string]())
}

func main() {
	app.Main(register, app.Command("hire TEAM NAME...", "Add people to a team", hire))
}

func register(r *percolator.Registry) {
	r.Strong("greet", name.Column, greet, percolator.MaxAttempts(3))
	r.Weak("list", changed, list)
}

// greet writes a person's greeting and notifies the team's row.
func greet(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	team, _, ok := strings.Cut(n.Row, "/")
	if !ok {
		return fmt.Errorf("row %q is not TEAM/PERSON", n.Row)
	}
	who, ok, err := name.Get(ctx, tx, n.Row)
	switch {
	case err != nil:
		return err
	case !ok: // the name was deleted
		greeting.Delete(tx, n.Row)
	case who == "":
		return errors.New("the name is empty")
	default:
		greeting.Set(tx, n.Row, "Hello, "+who+"!")
	}
	tx.Notify(team, changed)
	return nil
}

// list writes the list of a team's greetings. It writes even if nothing changed, so that of two
// concurrent runs only one commits; the other runs again on the newer state.
func list(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	all := []string{}
	people := percolator.Rows("people").Prefix(n.Row + "/")
	for g, err := range greeting.Scan(ctx, tx, people) {
		if err != nil {
			return err
		}
		all = append(all, g.Value)
	}
	roster.Set(tx, n.Row, all)
	return nil
}

// hire adds all people in one transaction.
func hire(ctx context.Context, call *app.Invocation) error {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	team := call.Args[0]
	return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		for _, who := range call.Args[1:] {
			name.Set(tx, team+"/"+strings.ToLower(who), who)
		}
		return nil
	})
}
