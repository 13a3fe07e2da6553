package actorkit

import (
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
)

// TestBatchesAreMeasured: each non-empty batch is observed once, and so is each marker's wait.
func TestBatchesAreMeasured(t *testing.T) {
	var sizes metrics.Sizes
	var waits metrics.Durations
	b := NewBatcher[int](BatchConfig{}).Measured(&sizes, &waits)
	for _, n := range []int{3, 0, 1, 0, 0, 8} {
		b.items = append(b.items, make([]int, n)...)
		b.GiveBack(b.Take())
	}
	b.marked, b.sent = true, metrics.Now()-metrics.Moment(time.Minute)
	if got := waits.Read(); !b.Due(b.marker) || got.Count() != 0 {
		t.Errorf("before the marker came: %v", got)
	}
	if got := waits.Read(); got.Count() != 1 || got.Sum < 60 {
		t.Errorf("a wait of a minute: %v", got)
	}
	if got := sizes.Read(); got.Count() != 3 || got.Sum != 12 {
		t.Errorf("%v", got)
	}
}

// TestGatherIsGivenUp: while no message joins, batches are held open ever more rarely, but now and
// then; once a message joins, every batch is held open.
func TestGatherIsGivenUp(t *testing.T) {
	b := NewBatcher[int](BatchConfig{})
	open := func(batches, items int) (left int) {
		for range batches {
			b.Gather()
			if b.gathering {
				left++
			}
			b.items = append(b.items, make([]int, items)...)
			b.GiveBack(b.Take())
		}
		return left
	}
	open(1<<maxSoloRounds, 1)
	if n := open(10<<maxSoloRounds, 1); n != 10 {
		t.Errorf("alone, %d of %d batches were left open, not one in %d", n, 10<<maxSoloRounds,
			1<<maxSoloRounds)
	}
	open(1<<maxSoloRounds, 2)
	if n := open(10, 2); n != 10 {
		t.Errorf("in company, %d of 10 batches were left open", n)
	}
	b.items = append(b.items, 1)
	if b.Gather(); b.gathering {
		t.Error("a batch that has begun was left open")
	}
}
