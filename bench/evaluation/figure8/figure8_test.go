package figure8

import (
	"testing"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// TestMeasure: every operation of a scene is measured, with its ratio, and the rows have the values
// committed last.
func TestMeasure(t *testing.T) {
	r := &harness.Run{Smoke: true, Rounds: 2, Seed: 1, Dir: t.TempDir()}
	for _, dial := range []bool{false, true} {
		s := scene{name: "scene", nodes: 1, dial: dial, rows: 640, size: 100, callers: []int{1, 64}}
		if err := measure(t.Context(), r, s, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{rawGet, readTxn, rawPut, onePhase, twoPhase} {
		for _, column := range []string{"/s", "ms p50", "µs CPU"} {
			if v, ok := r.Median(rates, kind+", scene", column); !ok || v <= 0 {
				t.Errorf("%s: %v %s", kind, v, column)
			}
		}
	}
	for _, o := range overheads {
		if v, ok := r.Median(ratios, o.of+", scene", "callers: 1"); !ok || v <= 0 {
			t.Errorf("%s / %s: %v", o.of, o.to, v)
		}
	}
}
