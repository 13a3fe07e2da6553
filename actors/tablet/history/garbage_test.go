package history

import (
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestGarbageIsBounded: garbage that does not fit is counted, and a survey finds it once enough of
// it is due.
func TestGarbageIsBounded(t *testing.T) {
	g := newGarbage()
	second := func(s int) mvcc.Timestamp { return mvcc.TimestampAt(int64(s) * 1000) }
	for i := range 3 * MaxRemembered {
		c := mvcc.Cell{Table: 16, Row: fmt.Sprint(i), Column: "c"}
		g.add(&mvcc.Garbage{Group: mvcc.GroupHistory, Cell: c, TS: 1, From: second(i / 1000)})
	}
	if len(g.known) != MaxRemembered || g.all || g.waiting.total() != 3*MaxRemembered {
		t.Fatalf("%d known, all %t, %d counted; want MaxRemembered, false, 3*MaxRemembered",
			len(g.known), g.all, g.waiting.total())
	}
	if g.surveyWorth(second(3)) || !g.surveyWorth(second(8)) {
		t.Errorf("due at 3 s: %d, at 8 s: %d; want a survey at 8 s only",
			g.waiting.due(second(3)), g.waiting.due(second(8)))
	}
	due := g.takeDue(second(2))
	if len(due) != 3000 || len(g.known) != MaxRemembered-3000 {
		t.Errorf("%d due, %d left; want 3000, MaxRemembered-3000", len(due), len(g.known))
	}
	for i := range due[1:] {
		if due[i].Cell.Compare(due[i+1].Cell) <= 0 {
			t.Fatal("the due entries are not in descending order of cells")
		}
	}
	g = newGarbage()
	c := mvcc.Cell{Table: 16, Row: string(make([]byte, maxRememberedBytes/2)), Column: "c"}
	for i := range 4 {
		c.Column = fmt.Sprint(i)
		g.add(&mvcc.Garbage{Group: mvcc.GroupHistory, Cell: c, TS: 1, From: 1})
	}
	if g.bytes > maxRememberedBytes || g.all {
		t.Errorf("%d bytes are remembered, want at most maxRememberedBytes, and not all", g.bytes)
	}
	// Of a cell's timestamps the lowest count.
	g = newGarbage()
	for _, ts := range []mvcc.Timestamp{7, 5, 9} {
		g.add(&mvcc.Garbage{Group: mvcc.GroupHistory, Cell: c, TS: ts, From: ts + 1})
	}
	if due := g.takeDue(6); len(due) != 1 || due[0].TS != 5 || due[0].From != 6 {
		t.Errorf("due of one cell are %v, want only 5, from 6", due)
	}
}

// TestHistogramForgetsNothing: joining buckets and subtracting keep the total.
func TestHistogramForgetsNothing(t *testing.T) {
	var h histogram
	for i := range 10_000 {
		h.add(mvcc.TimestampAt(int64(i*1000+i%7*3000)), 2)
	}
	if h.total() != 20_000 || len(h.buckets) > maxBuckets {
		t.Errorf("%d entries in %d buckets, want 20000 in at most maxBuckets", h.total(), len(h.buckets))
	}
	for i := range h.buckets[1:] {
		if h.buckets[i].upTo >= h.buckets[i+1].upTo {
			t.Fatal("the buckets are not in ascending order of upTo")
		}
	}
	h.take(19_999)
	if h.total() != 1 || h.due(mvcc.MaxTimestamp) != 1 {
		t.Errorf("%d are left", h.total())
	}
}
