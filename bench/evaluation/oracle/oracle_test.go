package oracle

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestClosedLoop: closedLoop counts the timestamps of batched requests, and fails if an oracle
// repeats them.
func TestClosedLoop(t *testing.T) {
	var granted atomic.Uint64
	grant := func(_ context.Context, count int) (mvcc.Timestamp, int, error) {
		return mvcc.Timestamp(granted.Add(uint64(count))) - mvcc.Timestamp(count) + 1, count, nil
	}
	l := load{clients: 2, callers: 16, batched: true}
	got, err := closedLoop(t.Context(), []client{{many: grant}, {many: grant}}, l, 5*time.Millisecond)
	if err != nil || got == 0 || got != granted.Load() {
		t.Errorf("%d of %d timestamps, %v", got, granted.Load(), err)
	}
	repeat := func(context.Context, int) (mvcc.Timestamp, int, error) { return 5, 16, nil }
	if _, err := closedLoop(t.Context(), []client{{many: repeat}}, l, time.Minute); err == nil {
		t.Error("timestamps were granted twice")
	}
}
