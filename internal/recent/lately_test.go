package recent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/recent"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestLately: reports on mailboxes and contended rows cover the last minutes, also when an actor or
// a row's count was reset in between; older ones are forgotten.
func TestLately(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	totals := func(batches, conflicts, others uint64) recent.Totals {
		h := func(n uint64) *wire.Histogram {
			return &wire.Histogram{Bounds: []float64{1}, Counts: []uint64{n, 0}, Sum: float64(n)}
		}
		return recent.Totals{
			Mailboxes: []*wire.Mailbox{{Actor: "tablet", Queued: 3, Batches: h(batches)}},
			Contended: []*wire.ContendedRow{
				{Table: 16, Row: []byte("a"), Conflicts: conflicts, Locked: 2, AtMost: others},
			},
		}
	}
	var l recent.Lately
	none := totals(5, 5, 0)
	if took := l.Tell(start, none); took != 0 || none.Mailboxes[0].Lately != nil {
		t.Errorf("before the beginning: %v, %v", took, none)
	}
	for minute := range 20 {
		l.Add(start.Add(time.Duration(minute)*time.Minute), totals(uint64(100*minute), uint64(10*minute), 0))
	}
	for what, c := range map[string]struct {
		now              recent.Totals
		batches, refused uint64
	}{
		"counted on":                   {totals(1930, 193, 0), 430, 43},
		"nothing since":                {totals(1500, 150, 0), 0, 0},
		"an actor that has begun anew": {totals(7, 193, 0), 7, 43},
		"a row that took a place":      {totals(1930, 193, 20), 430, 195},
		"a row that has begun anew":    {totals(1930, 4, 0), 430, 6},
	} {
		took := l.Tell(start.Add(19*time.Minute+30*time.Second), c.now)
		box := c.now.Mailboxes[0].Lately
		if took != 4*time.Minute+30*time.Second || box.Queued != 3 ||
			!slices.Equal(box.Batches.Counts, []uint64{c.batches, 0}) ||
			c.now.Contended[0].Lately != c.refused {
			t.Errorf("%s: of %v: %v, %v", what, took, box, c.now.Contended[0])
		}
	}
	other := recent.Totals{Mailboxes: []*wire.Mailbox{{Actor: "oracle",
		Batches: &wire.Histogram{Bounds: []float64{1}, Counts: []uint64{9, 1}, Sum: 12}}}}
	l.Tell(start.Add(20*time.Minute), other)
	if got := other.Mailboxes[0].Lately.Batches.Counts; !slices.Equal(got, []uint64{9, 1}) {
		t.Errorf("an actor that was not there before: %v", got)
	}
}
