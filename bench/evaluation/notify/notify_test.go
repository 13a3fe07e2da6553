package notify

import (
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestSmoke runs the measurement at its smallest size, with the checks of its results.
func TestSmoke(t *testing.T) {
	r := &harness.Run{Smoke: true, Rounds: 1, Seed: 1, Dir: t.TempDir()}
	if err := run(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for row, table := range map[string]string{
		"idle (50/s), snapshot held": returnTable, "300/s": dueTable, "among 2000 clean ones": findTable,
	} {
		if v, ok := r.Median(table, row, map[string]string{returnTable: "ms p50", dueTable: "ms p99", findTable: "ms"}[table]); !ok || v <= 0 {
			t.Errorf("%s, %s: %v, %t", table, row, v, ok)
		}
	}
}
