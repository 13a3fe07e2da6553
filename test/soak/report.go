package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// progress prints a line with the figures of now.
func (s *soak) progress() {
	t := &s.totals
	_, _ = fmt.Fprintf(s.o.out, "%s  cycles %d  writes %d (%d unknown)  kills %d+%d  splits %d  pauses %d  parked %d  held %d  past %d/%d  rests %d |",
		time.Since(s.began).Round(time.Second), s.cycle, t.writes, t.unknown, t.kills,
		t.clientKills, t.splits, t.pauses, t.parked,
		t.heldReads, t.pastReads, t.tooOld, t.rests)
	for i := range numFigures {
		_, _ = fmt.Fprintf(s.o.out, " %s %s ", figureNames[i], i.text(s.now[i]))
	}
	_, _ = fmt.Fprintln(s.o.out)
}

// summary prints what was done and the figures.
func (s *soak) summary() {
	t := &s.totals
	_, _ = fmt.Fprintf(s.o.out, "\nseed %d: %d cycles in %v\n", s.o.seed, s.cycle,
		time.Since(s.began).Round(time.Second))
	w := tabwriter.NewWriter(s.o.out, 0, 0, 2, ' ', 0)
	line := func(columns ...string) { _, _ = fmt.Fprintln(w, strings.Join(columns, "\t")) }
	for _, row := range []struct {
		what string
		n    int
	}{
		{"verified, no difference", t.verified}, {"writes", t.writes},
		{"writes whose outcome was not known", t.unknown},
		{"node killed", t.kills}, {"client killed", t.clientKills}, {"splits by command", t.splits},
		{"observer paused and resumed", t.pauses}, {"notifications parked", t.parked},
		{"notifications replayed", t.replayed},
		{"snapshots held past their history, unchanged", t.heldReads},
		{"reads of the past, unchanged", t.pastReads},
		{"reads below the bound, refused", t.tooOld},
		{"rests, history collected after them", t.rests},
	} {
		line(row.what, fmt.Sprint(row.n))
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(s.o.out)
	line("figure", "most, warming up", "most, then", "last", "limit")
	for i := range numFigures {
		limit := ""
		if a, bounded := allowances[i]; bounded {
			limit = i.text(int64(a.times*float64(s.limits.most[i])) + a.plus)
		}
		line(figureNames[i], i.text(s.limits.most[i]), i.text(s.totals.most[i]), i.text(s.now[i]),
			limit)
	}
	_ = w.Flush()
}
