package ablation

import (
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestMechanisms measures the variants at their smallest size. What a mechanism saves must show in the operations
// of a document.
func TestMechanisms(t *testing.T) {
	r := &harness.Run{Smoke: true, Rounds: 1, Seed: 1, Dir: t.TempDir()}
	if err := mechanisms(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, name := range []string{
		"20 documents in a transaction", "all defaults", "without prefetching", "without prefetching, cache and reads of several rows",
	} {
		operations, ok := r.Median(mechanismTable, name, "operations")
		if !ok || operations <= last {
			t.Errorf("%s: %.1f operations; it must be more than %.1f", name, operations, last)
		}
		last = operations
	}
}
