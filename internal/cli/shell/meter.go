package shell

import (
	"context"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// Progress of long commands on standard error.

// Intervals of progress lines: updated in place on a terminal, appended elsewhere.
const (
	meterTerminal = 200 * time.Millisecond
	meterLog      = 10 * time.Second
)

// Meter shows the progress of a long command. Its methods may be called concurrently. It draws only
// when progress is reported, so an unchanging line means that the command makes no progress.
type Meter struct {
	mu       sync.Mutex
	w        io.Writer
	Name     string // first part of every line
	quiet    bool   // --quiet: nothing is drawn
	terminal bool   // lines are drawn over each other
	every    time.Duration
	start    time.Time // of this run, for its speed
	shown    time.Time // time of the last line
	base     Tally     // progress of an earlier run, which does not count for the speed
	width    int       // of the line on the terminal
}

// Tally is the progress of a job. Total is in bytes if bytes are known, else in rows; 0 means
// unknown.
type Tally struct {
	Rows, Bytes, Skipped, Total int64

	// For a job over a table whose total is unknown: the number of completed tablets, and of all.
	Passed, Tablets int
}

// Extent contains the tablets of a range of rows at the start of a job over them. Later splits are
// ignored.
type Extent []mvcc.Span

// Extent queries the tablets of the rows. On failure it returns nil, because a job does not need its
// extent.
func (s *Session) Extent(ctx context.Context, rows mvcc.Span) (out Extent) {
	tablets, err := s.Tablets(ctx)
	if err != nil {
		return nil
	}
	for _, d := range tablets {
		if part, ok := wire.Clip(d, rows); ok {
			out = append(out, part)
		}
	}
	return out
}

// Passed returns the number of tablets that end at the row next or before it.
func (e Extent) Passed(next string) int {
	return sort.Search(len(e), func(i int) bool { return !e[i].HasEnd || e[i].End > next })
}

// NewMeter starts a meter at base, the progress of an earlier run.
func (p *Printer) NewMeter(name string, base Tally, quiet bool) *Meter {
	m := &Meter{
		w: p.rawErr, Name: OneLine(name), quiet: quiet, every: meterLog, base: base,
		start: time.Now(),
	}
	// A file or a pipe gets few lines, because it is read later, to find errors.
	if p.AtTerminal(p.rawErr) {
		m.terminal, m.every = true, meterTerminal
	}
	m.shown = m.start
	return m
}

// Show draws a line if one is due.
func (m *Meter) Show(t Tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.quiet || now.Sub(m.shown) < m.every {
		return
	}
	m.shown = now
	m.draw(m.line(t, now))
}

// End draws the last line, with the total time.
func (m *Meter) End(t Tally, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.quiet {
		return
	}
	now := time.Now()
	t.Total, t.Tablets = 0, 0 // no estimate
	if m.terminal {           // clear the longer line before it
		_, _ = fmt.Fprintf(m.w, "\r%*s\r", m.width, "")
	}
	_, _ = fmt.Fprintf(m.w, "%s, %s, %s\n", m.line(t, now),
		now.Sub(m.start).Round(time.Millisecond), how)
}

// draw writes a line, over the last one on a terminal.
func (m *Meter) draw(line string) {
	if !m.terminal {
		_, _ = fmt.Fprintln(m.w, line)
		return
	}
	_, _ = fmt.Fprintf(m.w, "\r%-*s", m.width, line)
	m.width = len(line)
}

// line returns the figures: rows, rows a second, bytes, and the time left.
func (m *Meter) line(t Tally, now time.Time) string {
	seconds := max(now.Sub(m.start).Seconds(), 1e-3)
	line := fmt.Sprintf("%s: %d rows, %.0f rows/s", m.Name, t.Rows,
		float64(t.Rows-m.base.Rows)/seconds)
	if t.Bytes > 0 {
		line += ", " + ByteText(t.Bytes)
	}
	if t.Skipped > 0 {
		line += fmt.Sprintf(", %d skipped", t.Skipped)
	}
	if t.Tablets > 0 {
		line += fmt.Sprintf(", %d of %d tablets", t.Passed, t.Tablets)
	}
	// Estimate by bytes if they are known, because the total number of rows usually is not.
	at, before := t.Bytes, m.base.Bytes
	if at == 0 {
		at, before = t.Rows, m.base.Rows
	}
	done, total := at-before, t.Total-before
	if t.Total > 0 && done > 0 && total >= done {
		left := time.Duration(seconds * float64(total-done) / float64(done) * float64(time.Second))
		line += fmt.Sprintf(", %d%%, %s left", at*100/t.Total, left.Round(time.Second))
	}
	return line
}
