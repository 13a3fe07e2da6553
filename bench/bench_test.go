package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain runs the collector of traces if this process was started as one.
func TestMain(m *testing.M) {
	if os.Getenv(collecting) != "" {
		if err := runCollector(os.Stdout, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if of := os.Getenv(apart); of != "" {
		if err := runApart(context.Background(), of, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestCosts runs every comparison once, briefly.
func TestCosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	var out strings.Builder
	o := options{
		duration: 50 * time.Millisecond, callers: []int{4}, rounds: 1, dir: t.TempDir(), only: costs,
	}
	if err := runAll(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, w := range watchers {
		for _, what := range []string{readTxn, onePhase} {
			if !strings.Contains(out.String(), what+": "+w.name) {
				t.Errorf("no figures of %s with %s", what, w.name)
			}
		}
	}
}

// TestSmoke runs every workload once, briefly: the values are meaningless, but each figure must be
// printed.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	var out strings.Builder
	o := options{
		duration: 50 * time.Millisecond, callers: []int{4, 64}, rounds: 1,
		dir: t.TempDir(), documents: 100, workers: []int{2, 4}, batches: []int{1, 10},
		leaves: 100,
	}
	if err := runAll(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, k := range kinds() {
		if !strings.Contains(out.String(), k.name) {
			t.Errorf("no figures of %s", k.name)
		}
	}
	for _, r := range ratios {
		if !strings.Contains(out.String(), r.above+" / "+r.below) {
			t.Errorf("no ratio of %s to %s", r.above, r.below)
		}
	}
	if !strings.Contains(out.String(), "4 workers") {
		t.Error("no clustering")
	}
	if !strings.Contains(out.String(), "one change:") {
		t.Error("no fan-out")
	}
}
