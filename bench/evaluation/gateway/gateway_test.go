package gateway

import (
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestRun: each operation is measured by each protocol, and the rows have what was written last.
func TestRun(t *testing.T) {
	r := &harness.Run{Smoke: true, Rounds: 1, Seed: 1, Dir: t.TempDir()}
	if err := run(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, operation := range operations {
		for _, p := range protocols() {
			for _, table := range []string{rates, alone} {
				if v, ok := r.Median(table, operation+", "+p.name, "ms p50"); !ok || v <= 0 {
					t.Errorf("%s by %s, %s: %v ms", operation, p.name, table, v)
				}
			}
		}
	}
}
