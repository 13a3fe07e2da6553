package shell

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/inspect"
)

// The rate is this run's, the estimate follows from the bytes, and the last line has no estimate.
func TestMeter(t *testing.T) {
	start := time.Unix(100, 0)
	var out bytes.Buffer
	m := &Meter{
		w: &out, Name: "load", start: start, shown: start, every: time.Hour,
		base: Tally{Rows: 100, Bytes: 1000},
	}
	got := m.line(Tally{Rows: 300, Bytes: 3000, Skipped: 2, Total: 5000}, start.Add(10*time.Second))
	if want := "load: 300 rows, 20 rows/s, 2.9 KiB, 2 skipped, 60%, 10s left"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	parts := Extent{{End: "b", HasEnd: true}, {Start: "b", End: "m", HasEnd: true}, {Start: "m"}}
	got = m.line(Tally{Rows: 300, Passed: parts.Passed("m"), Tablets: len(parts)}, start.Add(10*time.Second))
	if want := "load: 300 rows, 20 rows/s, 2 of 3 tablets"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	got = m.line(Tally{Rows: 300, Total: 500}, start.Add(10*time.Second)) // of unknown bytes
	if want := "load: 300 rows, 20 rows/s, 60%, 10s left"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	m.Show(Tally{Rows: 1})
	m.shown = m.shown.Add(-24 * time.Hour)
	m.every = 0
	m.Show(Tally{Rows: 2})
	m.End(Tally{Rows: 3, Bytes: 3, Total: 6}, "done")
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) < 2 ||
		!strings.HasSuffix(lines[len(lines)-1], ", done") ||
		strings.Contains(lines[len(lines)-1], "left") {
		t.Errorf("shown:\n%s", out.String())
	}
	out.Reset()
	m.quiet = true
	m.Show(Tally{Rows: 4})
	m.End(Tally{Rows: 4}, "done")
	if out.Len() > 0 {
		t.Errorf("quiet, and yet: %s", out.String())
	}
}

// On a terminal each line overwrites the previous one, whatever their lengths.
func TestMeterOnATerminal(t *testing.T) {
	var out bytes.Buffer
	m := &Meter{w: &out, Name: "load", terminal: true}
	m.draw("a long line")
	m.draw("short")
	if got := out.String(); got != "\ra long line\rshort      " {
		t.Errorf("%q", got)
	}
}

func TestByteText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB",
		5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB"} {
		if got := ByteText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 340 * time.Millisecond: "340ms", 4234 * time.Millisecond: "4.2s",
		190 * time.Second: "3m10s", 5*time.Hour + time.Second: "5h0m",
	} {
		if got := inspect.Span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
