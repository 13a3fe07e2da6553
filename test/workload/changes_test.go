package workload

import (
	"testing"

	percolator "github.com/percolator-go/percolator"
)

// TestChangeCheckComparesRepetitions: a change that is yielded again must be the same.
func TestChangeCheckComparesRepetitions(t *testing.T) {
	first := percolator.Change{Cell: percolator.Cell{
		CellKey: percolator.CellKey{Row: "r", Column: value}, CommitTS: 5, Value: []byte("x"),
	}}
	other, deleted := first, first
	other.Value = []byte("y")
	deleted.Value, deleted.Deleted = nil, true
	for _, again := range []percolator.Change{first, other, deleted} {
		c := &ChangeCheck{}
		if err := c.Apply(first); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(again); (err != nil) != (again.Deleted || string(again.Value) != "x") {
			t.Errorf("%+v again as %+v: %v", first, again, err)
		}
	}
}

// TestFiguresOfNoTally: a nil Tally, which a load without one has, returns no figures.
func TestFiguresOfNoTally(t *testing.T) {
	var none *Tally
	if got := none.Figures(); got != (Figures{}) {
		t.Error(got)
	}
}
