package txn

import (
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// TestGapBetweenPolls: the rest of a page is requested at once, a busy tablet is polled less often
// than one with few changes, and an idle one of a feed that does not wait in tablets least often.
func TestGapBetweenPolls(t *testing.T) {
	for what, c := range map[string]struct {
		r    feedRange
		many bool
		want time.Duration
	}{
		"more changes":       {feedRange{last: busyPage, after: &pb.Cell{}}, false, 0},
		"many changes":       {feedRange{last: busyPage}, false, busyPollGap},
		"few changes":        {feedRange{last: busyPage - 1}, false, pollGap},
		"none":               {feedRange{idle: 3}, false, pollGap},
		"none, many ranges":  {feedRange{idle: 3}, true, pollGap << 3},
		"idle, many ranges":  {feedRange{idle: 1 << 20}, true, resolveEvery},
		"many of everything": {feedRange{last: busyPage}, true, busyPollGap},
	} {
		if got := c.r.gap(c.many); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
