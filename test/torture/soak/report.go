package soak

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// activity names one thing that a soak does.
type activity int

const (
	verified activity = iota
	writes
	unknown
	kills
	clientKills
	splits
	pauses
	parked
	heldReads
	pastReads
	tooOld
	rests
	numActivities
)

var activityNames = [numActivities]string{
	"comparisons without a difference", "writes", "writes of unknown outcome", "node killed",
	"client killed", "splits by command", "observer paused and resumed",
	"notifications parked and replayed", "snapshots held past their history, unchanged",
	"reads of the past, unchanged", "reads below the bound, refused",
	"rests, history collected after them",
}

// Report is what a soak has done.
type Report struct {
	Writes, Unknown int
	Strikes         int    // kills of the node and of clients
	Text            string // a table of all counts and figures
}

func (s *soak) report() Report {
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%d cycles in %v\n", s.cycle, time.Since(s.began).Round(time.Second))
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(columns ...string) { _, _ = fmt.Fprintln(w, strings.Join(columns, "\t")) }
	for i, n := range s.did {
		line(activityNames[i], fmt.Sprint(n))
	}
	line("")
	line("figure", "most, warming up", "most, then", "last", "limit")
	for i := range numFigures {
		limit := ""
		if a, bounded := allowances[i]; bounded {
			limit = i.text(int64(a.times*float64(s.limits.most[i])) + a.plus)
		}
		line(figureNames[i], i.text(s.limits.most[i]), i.text(s.most[i]), i.text(s.now[i]), limit)
	}
	_ = w.Flush()
	return Report{
		Writes: s.did[writes], Unknown: s.did[unknown], Strikes: s.did[kills] + s.did[clientKills],
		Text: text.String(),
	}
}
