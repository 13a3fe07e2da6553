// Command board greets people, lists the greetings of each team, and counts heads.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/recipes/combine"
)

// A row of people is TEAM/PERSON, a row of teams is TEAM, and company has one row, "all".
var (
	name     = text("people", "name")
	greeting = text("people", "greeting")
	changed  = percolator.Column{Table: "teams", Name: "changed"}
	roster   = percolator.Typed(percolator.Column{Table: "teams", Name: "roster"},
		percolator.JSON[[]string]())
	counted = percolator.Typed(percolator.Column{Table: "teams", Name: "counted"},
		percolator.Integer[int64]())
	heads = combine.Counter("heads", percolator.Column{Table: "company", Name: "heads"})
)

func text(table, column string) percolator.TypedColumn[string] {
	return percolator.Typed(percolator.Column{Table: table, Name: column}, percolator.Text[string]())
}

func main() {
	app.Main(register,
		app.Command("hire TEAM COUNT", "Fill a team with people", hire),
		app.Command("check", "Wait for the observers and check their results", check))
}

func register(r *percolator.Registry) {
	r.Table(percolator.TableSpec{Name: "company"})
	r.Strong("greet", name.Column, greet, percolator.MaxAttempts(3))
	r.Weak("list", changed, list)
	r.Strong("count", roster.Column, count)
	heads.Register(r)
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

// count adds the growth of a team since its last count to the company's heads. The sum is a hot
// row, so a combine queue collects the additions of all teams.
func count(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	now, _, err := roster.Get(ctx, tx, n.Row)
	if err != nil {
		return err
	}
	before, _, err := counted.Get(ctx, tx, n.Row)
	if err != nil {
		return err
	}
	counted.Set(tx, n.Row, int64(len(now)))
	heads.Add(tx, "all", int64(len(now))-before)
	return nil
}

// hire adds people, one transaction each. It is idempotent.
func hire(ctx context.Context, call *app.Invocation) error {
	team := call.Args[0]
	people, err := strconv.Atoi(call.Args[1])
	if err != nil {
		return call.Usage("COUNT is a number: %v", err)
	}
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	l := db.Loader(percolator.LoaderConfig{Workers: 8})
	for i := range people {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			name.Set(tx, fmt.Sprintf("%s/%04d", team, i), fmt.Sprintf("Person %d", i))
			return nil
		})
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return l.Close()
}

// check fails unless the greetings, rosters and heads of one snapshot match its names.
func check(ctx context.Context, call *app.Invocation) error {
	db, err := call.DB(ctx)
	if err != nil {
		return err
	}
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	want := map[string]int{}
	people := 0
	for n, err := range name.Scan(ctx, s, percolator.Rows("people")) {
		if err != nil {
			return err
		}
		team, _, _ := strings.Cut(n.Row, "/")
		want[team]++
		people++
		if g, _, err := greeting.Get(ctx, s, n.Row); err != nil || g != "Hello, "+n.Value+"!" {
			return errors.Join(err, fmt.Errorf("%s is greeted with %q", n.Row, g))
		}
	}
	for team, members := range want {
		if list, _, err := roster.Get(ctx, s, team); err != nil || len(list) != members {
			return errors.Join(err, fmt.Errorf("%s lists %d greetings, want %d", team, len(list), members))
		}
	}
	sum, _, err := heads.Get(ctx, s, "all")
	if err != nil || sum != int64(people) {
		return errors.Join(err, fmt.Errorf("%d heads are counted, want %d", sum, people))
	}
	fmt.Fprintf(call.Stdout, "%d people in %d teams, all greeted, listed and counted\n",
		people, len(want))
	return nil
}
