package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestMeasurements: measurements have distinct names, titles, a section in the page, and budgets
// that fit into an hour together.
func TestMeasurements(t *testing.T) {
	page, err := os.ReadFile("../../docs/evaluation.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	minutes := 0.0
	for _, m := range measurements() {
		if m.Title == "" || m.Budget <= 0 || m.Run == nil || slices.Contains(names, m.Name) {
			t.Errorf("%q: %+v", m.Name, m)
		}
		names = append(names, m.Name)
		minutes += m.Budget.Minutes()
		if !strings.Contains(string(page), "<!-- "+m.Name+" -->\n") || !strings.Contains(string(page), "<!-- /"+m.Name+" -->") {
			t.Errorf("docs/evaluation.md has no markers of %s", m.Name)
		}
	}
	if minutes > 60 {
		t.Errorf("all measurements have a budget of %.0f minutes", minutes)
	}
}

func TestChoose(t *testing.T) {
	all := []harness.Measurement{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for names, want := range map[string]int{"": 3, "b": 1, "c,a": 2} {
		if got, err := choose(all, names); err != nil || len(got) != want {
			t.Errorf("%q: %d, %v", names, len(got), err)
		}
	}
	if _, err := choose(all, "a,d"); err == nil || !strings.Contains(err.Error(), `"d"`) {
		t.Errorf("of an unknown name: %v", err)
	}
}
