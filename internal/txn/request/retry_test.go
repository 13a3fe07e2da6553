package request

import (
	"testing"
	"time"
)

// TestRowBelow: no row lies between a row and the one below it.
func TestRowBelow(t *testing.T) {
	for row, want := range map[string]string{"b": "a\xff\xff", "b\x00": "b", "\x01": "\x00\xff\xff",
		"ab\x01": "ab\x00", "\x00": ""} {
		if got := rowBelow(row, 3); got != want {
			t.Errorf("below %q: %q, want %q", row, got, want)
		}
	}
}

// TestBackoff: the wait before an attempt grows, with jitter, up to the maximum.
func TestBackoff(t *testing.T) {
	var b Backoff
	for _, n := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 100, 100} {
		full := n * time.Millisecond
		if d := b.Next(); d < full/2 || d > full {
			t.Errorf("%v, want %v to %v", d, full/2, full)
		}
	}
}
