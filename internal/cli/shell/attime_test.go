package shell

import (
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"

	"github.com/percolator-go/percolator/internal/inspect"
)

func TestParseAt(t *testing.T) {
	noon := mvcc.TimestampAt(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).UnixMilli())
	day := mvcc.TimestampAt(noon.Millis() - (24 * time.Hour).Milliseconds())
	for _, c := range []struct {
		at   string
		want mvcc.Timestamp // when a new timestamp is that of noon
		says string
	}{
		{"", 0, ""},
		{"17", 17, ""},
		{"now", noon, ""},
		{"0s", noon, ""},
		{"1d", day, ""},
		{"24h", day, ""},
		{"0d24h", day, ""},
		{"99999d", 1, ""},
		{"2026-01-31T12:00:00Z", noon, ""},
		{"2026-01-31 12:00:00Z", noon, ""},
		{"2026-01-31 13:00+01:00", noon, ""},
		{"2026-01-31 12:00:00.000Z", noon, ""},
		{"2026-01-31 12:00:00", 0, "has no time zone: write 2026-01-31T12:00:00Z for UTC, or 2026-01-31T12:00:00"},
		{"2026-01-31", 0, "has no time zone: write 2026-01-31T00:00:00Z"},
		{"1969-12-31T23:59:59Z", 0, "begin in 1970"},
		{"1970-01-01T00:00:00Z", 0, "begin in 1970"},
		{"9999-01-01T00:00:00Z", 0, "end in 4199"},
		{"-5m", 0, "neither a timestamp"},
		{"1d-5m", 0, "neither a timestamp"},
		{"999999d", 0, "neither a timestamp"},
		{"0", 0, "neither a timestamp"},
		{"yesterday", 0, "nor an age such as 5m or 1d"},
	} {
		got, err := ParseAt(nil, c.at)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("--at %q: %v, want %q", c.at, err, c.says)
		} else if ts := got.timestamp(noon); err == nil && ts != c.want {
			t.Errorf("--at %q: timestamp %d, want %d", c.at, ts, c.want)
		}
	}
	if last := mvcc.TimestampAt(maxMillis); last.Millis() != maxMillis {
		t.Errorf("maxMillis %d overflows to %d", int64(maxMillis), last.Millis())
	}
	if year := time.UnixMilli(maxMillis).UTC().Year(); year != 4199 {
		t.Errorf("timestamps end in %d", year)
	}
}

// TestAheadByLittle: a difference of some milliseconds between clocks is normal.
func TestAheadByLittle(t *testing.T) {
	clock := time.Now()
	var warned strings.Builder
	out := &Printer{Commands: inspect.Commands{Program: "percolator"}, Stderr: &warned}
	out.noteAhead(atTime{ByClock: true}, mvcc.TimestampAt(clock.UnixMilli()+50), clock)
	if warned.String() != "" {
		t.Errorf("warned of 50 ms: %s", &warned)
	}
}
