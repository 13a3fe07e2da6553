//go:build linux

package demo

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowestWrite: a write under way is shown with its duration so far, each time; a finished one
// is shown once.
func TestSlowestWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crawl{}
		c.slowest.Store(int64(time.Second))
		began := time.Now()
		c.began.Store(&began)
		<-time.After(3 * time.Second)
		for _, want := range []time.Duration{3 * time.Second, 3 * time.Second} {
			if got := c.slowestWrite(); got != want {
				t.Errorf("the slowest write took %v, not %v", got, want)
			}
		}
		c.slowest.Store(int64(time.Second))
		c.began.Store(nil)
		for _, want := range []time.Duration{time.Second, 0} {
			if got := c.slowestWrite(); got != want {
				t.Errorf("the slowest write took %v, not %v", got, want)
			}
		}
	})
}
