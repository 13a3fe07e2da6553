package turns

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlan: every workload is measured with every variant in each round, and a ratio is to the
// baseline in the same round.
func TestPlan(t *testing.T) {
	rounds := 0
	p := Plan{
		Workloads: []string{"w"}, Variants: []string{"base", "other"}, Columns: []string{"/s", "ms"}, Rounds: 3,
		Measure: func(_ context.Context, _, variant int) ([]float64, error) {
			if variant == 0 {
				rounds++
				return []float64{float64(1000 * rounds), 2.5}, nil
			}
			return []float64{float64(2000 * rounds), 7}, nil
		},
	}
	var out strings.Builder
	if err := p.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	got, want := strings.Fields(lines[len(lines)-1]), strings.Fields("w other 4000 7 2.00 2.00 2.00")
	if !slices.Equal(got, want) || len(lines) != 10 {
		t.Errorf("want the last line %q:\n%s", want, out.String())
	}
}

// TestRepeat: operations that begin in the warm-up do not count, and one that outlasts the duration does.
func TestRepeat(t *testing.T) {
	f, err := Repeat(t.Context(), 1, 20*time.Millisecond, time.Millisecond, func(context.Context, int, int) error {
		timer := time.NewTimer(30 * time.Millisecond)
		<-timer.C
		return nil
	})
	if err != nil || len(f.Latencies) != 1 || f.Millis(1)[0] < 30 {
		t.Errorf("%+v, %v", f, err)
	}
}
