package heap

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGauge: an eighth of a budget is a crowd, until less than half of that is taken.
func TestGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGauge(800)
		crowds := func() int {
			bound.mu.Lock()
			defer bound.mu.Unlock()
			return bound.count
		}
		for i, step := range []struct{ add, crowds int }{{99, 0}, {1, 1}, {700, 1}, {-700, 1}, {-50, 1}, {-1, 0}, {-49, 0}} {
			if g.Add(int64(step.add)); crowds() != step.crowds {
				t.Errorf("step %d: %d crowds, want %d", i, crowds(), step.crowds)
			}
		}
		if g.Crowded() {
			t.Error("nothing is taken")
		}
		<-time.After(calm + 2*tick) // until GOGC is as before
	})
}
