package observer

import (
	"fmt"
	"testing"
	"time"
)

// TestFrequentRowIsFound: a frequent row is found among many rows that occur once, in bounded
// memory, with one warning in 50 s, and is forgotten after a quiet time.
func TestFrequentRowIsFound(t *testing.T) {
	var f frequent
	now := time.Unix(1000, 0)
	warnings := 0
	for i := range 100_000 { // 50 s
		now = now.Add(500 * time.Microsecond)
		row := fmt.Sprint(i)
		if i%10 == 0 {
			row = "hot"
		}
		if f.add(row, now) {
			warnings++
			if row != "hot" {
				t.Fatalf("warned of %s", row)
			}
		}
		if len(f.counts) > frequentRows {
			t.Fatalf("%d counters", len(f.counts))
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings in 50 s", warnings)
	}
	if rows := f.rows(now); len(rows) != 1 || rows["hot"] < frequentRuns {
		t.Errorf("rows %v", rows)
	}
	if rows := f.rows(now.Add(3 * frequentWindow)); len(rows) != 0 {
		t.Errorf("after a quiet time: %v", rows)
	}
	for i := range frequentRuns - 1 {
		if f.add("slow", now.Add(time.Hour+time.Duration(i)*time.Millisecond)) {
			t.Error("warned of a row that ran less often")
		}
	}
}
