package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		live        uint64
		asked, want int
	}{
		{0, 100, 100}, {Slack, 100, 100}, {2 * Slack, 100, 50}, {2 * Slack, 20, 20}, {1 << 40, 100, least}, {4 * Slack, 400, 25}, {Slack, -1, -1},
	} {
		if got := percentFor(c.live, c.asked); got != c.want {
			t.Errorf("%d MiB live, GOGC %d: %d, want %d", c.live>>20, c.asked, got, c.want)
		}
	}
}

// TestCrowd: GOGC is as before once all crowds have been over for a while, and not before.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime.GC() // now it is known what lives
		asked := debug.SetGCPercent(1 << 20)
		defer debug.SetGCPercent(asked)
		first, second := Crowd(), Crowd()
		is := func() int {
			bound.mu.Lock()
			defer bound.mu.Unlock()
			return bound.now
		}
		first()
		<-time.After(2 * calm)
		if is() == 1<<20 {
			t.Error("one crowd is left, and nothing is bounded")
		}
		second()
		<-time.After(calm + 2*tick)
		synctest.Wait()
		if is() != 1<<20 {
			t.Errorf("GOGC stays at %d", is())
		}
	})
}
