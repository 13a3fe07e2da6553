package tpce

import (
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// TestLags: a commission's lag ends with the first total that counts as many trades as had a
// commission by then, whatever the totals began with.
func TestLags(t *testing.T) {
	at := func(ms int) percolator.Timestamp { return percolator.Timestamp(ms) << 18 }
	l := &ledger{
		added:  []percolator.Timestamp{at(30), at(10), at(20)},
		totals: []total{{at(15), 101}, {at(18), 101}, {at(37), 103}},
	}
	var lags []time.Duration
	if err := l.lags(func(_ time.Time, lag time.Duration) { lags = append(lags, lag) }); err != nil {
		t.Fatal(err)
	}
	want := []time.Duration{5 * time.Millisecond, 17 * time.Millisecond, 7 * time.Millisecond}
	if !slices.Equal(lags, want) {
		t.Errorf("got %v, want %v", lags, want)
	}
	if err := (&ledger{added: l.added}).lags(func(time.Time, time.Duration) {}); err == nil {
		t.Error("commissions without a total are no error")
	}
}
