package scanner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestLocksOfABatchAreReleasedTogether: locks released within a moment go to lockd in one message.
// One that its owner takes again meanwhile is not unlocked. Catches BROKEN=unlock_retaken.
func TestLocksOfABatchAreReleasedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(0)
		h := newHolder(w, 1)
		var cells []mvcc.Cell
		for i := range offerCells {
			cells = append(cells, cell(row(i)))
		}
		h.take(t.Context(), cells)
		for _, c := range cells {
			h.release(c)
		}
		if got := h.take(t.Context(), cells[:1]); got[0] != lockGranted {
			t.Fatalf("a released lock is %v", got[0])
		}
		<-time.After(unlockDelay)
		synctest.Wait()
		if w.unlocks != 1 || w.unlocked != offerCells-1 || len(w.held) != 1 {
			t.Errorf("UNLOCK-RETAKEN: %d messages unlock %d keys, %d locks remain: want 1, %d, 1", w.unlocks, w.unlocked,
				len(w.held), offerCells-1)
		}
		h.release(cells[0])
		<-time.After(unlockDelay)
		synctest.Wait()
		if w.unlocks != 2 || len(w.held) != 0 {
			t.Errorf("%d messages, %d locks remain", w.unlocks, len(w.held))
		}
	})
}
