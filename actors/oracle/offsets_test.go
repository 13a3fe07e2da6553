package oracle

import (
	"slices"
	"testing"
	"time"
)

// TestAheadClocks: a node is ahead relative to the others' median, whichever node judges: one clock
// far behind makes no other ahead, and slow answers are ignored.
func TestAheadClocks(t *testing.T) {
	const limit = 5 * time.Second
	now := time.Now()
	for name, tc := range map[string]struct {
		offset map[uint64]time.Duration
		took   time.Duration
		want   []uint64
	}{
		"alone": {map[uint64]time.Duration{1: 0}, 0, nil},
		"alike": {
			map[uint64]time.Duration{1: 0, 2: 2 * time.Second, 3: -2 * time.Second}, 0, nil,
		},
		"one ahead": {
			map[uint64]time.Duration{1: 0, 2: time.Hour, 3: time.Second}, 0, []uint64{2},
		},
		"this one ahead": {
			map[uint64]time.Duration{1: 0, 2: -time.Hour, 3: -time.Hour}, 0, []uint64{1},
		},
		"one behind": {map[uint64]time.Duration{1: 0, 2: 0, 3: -time.Hour}, 0, nil},
		"slow to tell": {
			map[uint64]time.Duration{1: 0, 2: time.Hour, 3: time.Second}, 3 * time.Second, nil,
		},
		"one of two ahead": {map[uint64]time.Duration{1: 0, 2: time.Minute}, 0, []uint64{2}},
	} {
		c := &Offsets{} // usable without a Forget
		for node, off := range tc.offset {
			c.Saw(node, now.Add(off).UnixMilli(), now, now.Add(tc.took), limit)
		}
		if got := c.Ahead(limit); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v are ahead, want %v", name, got, tc.want)
		}
	}
}
