package main

import (
	"testing"

	"github.com/percolator-go/percolator/percolatortest"
)

func TestRosterFollowsNames(t *testing.T) {
	n := percolatortest.Start(t, register)
	// The first runs of greet conflict; one run of list dies before clearing its notification.
	n.Inject(t, percolatortest.Fault{Kind: percolatortest.CommitConflicts, Observer: "greet", Times: 2})
	n.Inject(t, percolatortest.Fault{Kind: percolatortest.ClearLost, Observer: "list", Times: 1})

	n.Set(t, "engine/ada", name.Column, "Ada")
	n.Set(t, "engine/bob", name.Column, "Bob")
	n.RunUntilIdle(t)
	want(t, n, `["Hello, Ada!","Hello, Bob!"]`)

	n.Delete(t, "engine/bob", name.Column)
	n.RunUntilIdle(t)
	want(t, n, `["Hello, Ada!"]`)
}

func want(t *testing.T, n *percolatortest.Node, value string) {
	t.Helper()
	if got, _ := n.Get(t, "engine", roster.Column); got != value {
		t.Errorf("the roster is %s, want %s", got, value)
	}
}
