package memory

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestAgesGetCoarser: the reported oldest is within a bucket of the true one, in a bounded number
// of buckets.
func TestAgesGetCoarser(t *testing.T) {
	var a, b ages
	for i := range int64(20_000) {
		a.add(mvcc.TimestampAt(5_000_000+i*1000), 1)
	}
	b.add(mvcc.TimestampAt(4_000_500), 1)
	a.merge(&b)
	if len(a.buckets) > maxAges || a.double == 0 {
		t.Fatalf("%d buckets of %d ms", len(a.buckets), a.width())
	}
	if got := a.oldest().Millis(); got > 4_000_500 || got < 4_000_500-a.width() {
		t.Fatalf("the oldest is reported as %d, and is 4000500", got)
	}
	var one ages
	one.add(mvcc.TimestampAt(7_777), 1)
	if got := one.oldest().Millis(); got != 7_777 {
		t.Fatalf("the only one is of 7777, and is reported as of %d", got)
	}
	a.add(mvcc.TimestampAt(4_000_500), -1)
	for i := range int64(20_000) {
		a.add(mvcc.TimestampAt(5_000_000+i*1000), -1)
	}
	if a.oldest() != 0 || len(a.buckets) != 0 {
		t.Fatalf("%d left, %d buckets", a.oldest(), len(a.buckets))
	}
}

// TestLeastOfACountIsNoneTooHigh: entries from before a count are removed during it, so that a
// bucket is empty for a moment; the ones added before that moment are still found.
func TestLeastOfACountIsNoneTooHigh(t *testing.T) {
	var changes, counted ages
	changes.add(mvcc.TimestampAt(7_120), 1)
	changes.add(mvcc.TimestampAt(7_180), -1)
	counted.add(mvcc.TimestampAt(7_180), 1)
	changes.merge(&counted)
	if n := countUpTo(changes.counted(), mvcc.TimestampAt(7_150)); n != 1 {
		t.Errorf("ORIGIN-MISSED: %d are of 7150 or before, want the one of 7120", n)
	}
	if n := countUpTo(changes.counted(), mvcc.TimestampAt(6_999)); n != 0 {
		t.Errorf("%d are of the second before", n)
	}
}
