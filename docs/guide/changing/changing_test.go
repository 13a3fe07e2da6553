package main

import (
	"context"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestReleasesReplaceEachOther deploys the releases one after the other, and an earlier one again
// where docs/guide/changing.md does.
func TestReleasesReplaceEachOther(t *testing.T) {
	n := percolatortest.Start(t, releases["1"].register)
	save := func(release, row, who string) {
		t.Helper()
		if err := releases[release].save(t.Context(), n.DB(), row, who); err != nil {
			t.Fatal(err)
		}
	}
	deploy := func(release string) { n.RestartWith(t, releases[release].register) }
	expect := func(row string, want map[percolator.TypedColumn[string]]string) {
		t.Helper()
		n.RunUntilIdle(t)
		for column, value := range want {
			if got, _ := n.Get(t, row, column.Column); got != value {
				t.Errorf("%s of %s is %q, not %q", column.Column.Name, row, got, value)
			}
		}
	}
	type cells = map[percolator.TypedColumn[string]]string

	save("1", "ada", "Ada")
	expect("ada", cells{greeting: "Hello, Ada!", initial: "A"})

	deploy("2") // split, and change what card writes
	save("2", "bob", "Bob")
	expect("bob", cells{greeting: "Good morning, Bob!", initial: "B"})
	expect("ada", cells{greeting: "Hello, Ada!"})
	replay(t, n, "card")
	replay(t, n, "initial")
	expect("ada", cells{greeting: "Good morning, Ada!", initial: "A"})

	deploy("1") // back: initial waits, and card writes both
	save("1", "bob", "Cleo")
	eventually(t, "release 1 has run", func() bool {
		got, _ := n.Get(t, "bob", greeting.Column)
		return got == "Hello, Cleo!"
	})
	deploy("2")
	expect("bob", cells{greeting: "Hello, Cleo!", initial: "C"})
	replay(t, n, "card")
	expect("bob", cells{greeting: "Good morning, Cleo!", initial: "C"})

	deploy("3") // write both
	expect("ada", cells{fullName: ""})
	save("2", "dan", "Dan") // a program of release 2 that still runs
	save("3", "eve", "Eve")
	replay(t, n, "rename")
	for row, who := range map[string]string{"ada": "Ada", "bob": "Cleo", "dan": "Dan", "eve": "Eve"} {
		expect(row, cells{name: who, fullName: who, greeting: "Good morning, " + who + "!"})
	}

	deploy("4") // read the new one
	save("4", "ada", "Ada L.")
	eventually(t, "release 4 has run", func() bool {
		got, _ := n.Get(t, "ada", greeting.Column)
		return got == "Good morning, Ada L.!"
	})
	deploy("3") // back
	save("3", "eve", "Eva")
	eventually(t, "release 3 has run", func() bool {
		got, _ := n.Get(t, "eve", greeting.Column)
		return got == "Good morning, Eva!"
	})
	deploy("4")
	retire(t, n, "card", "initial", "rename")
	expect("eve", cells{name: "Eva", fullName: "Eva", greeting: "Good morning, Eva!", initial: "E"})

	deploy("5") // drop
	save("5", "fay", "Fay")
	if err := n.DB().DeleteColumn(t.Context(), percolator.Rows("people"), name.Column); err != nil {
		t.Fatal(err)
	}
	if left := n.Column(t, name.Column); len(left) != 0 {
		t.Errorf("names are left: %v", left)
	}
	expect("ada", cells{name: "", fullName: "Ada L.", greeting: "Good morning, Ada L.!"})
	expect("fay", cells{name: "", fullName: "Fay", greeting: "Good morning, Fay!", initial: "F"})
}

// TestVisitsExpire: one column expires by age, and the others stay.
func TestVisitsExpire(t *testing.T) {
	n := percolatortest.Start(t, nil, percolatortest.Tables(percolator.TableSpec{Name: "people"}))
	n.Set(t, "ada", visit.Column, "today")
	n.Set(t, "ada", name.Column, "Ada")
	err := n.DB().SetExpiry(t.Context(), "people", percolator.Expiry{
		Columns: map[string]time.Duration{visit.Column.Name: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the visit has expired", func() bool { return len(n.Column(t, visit.Column)) == 0 })
	if got, _ := n.Get(t, "ada", name.Column); got != "Ada" {
		t.Errorf("the name is %q", got)
	}
}

// replay marks all rows of an observer and waits until it has run for them.
func replay(t *testing.T, n *percolatortest.Node, observer string) {
	t.Helper()
	admin := n.DB().Admin()
	if _, err := admin.ReplayObserver(t.Context(), observer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all rows are marked", func() bool {
		now, err := admin.Replay(t.Context(), observer)
		if err != nil || now == nil || now.Err != nil {
			t.Fatalf("%+v, %v", now, err)
		}
		return now.State == percolator.ReplayDone
	})
	n.RunUntilIdle(t)
}

// retire removes observers and waits until the cluster has forgotten them.
func retire(t *testing.T, n *percolatortest.Node, names ...string) {
	t.Helper()
	admin := n.DB().Admin()
	for _, observer := range names {
		if _, err := admin.RetireObserver(t.Context(), observer); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two observers are left", func() bool {
		left, err := admin.Observers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(left) == 2
	})
}

// eventually waits up to ten seconds until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
