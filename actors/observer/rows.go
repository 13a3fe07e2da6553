package observer

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Listing of the rows that keep an observer busy, for operators. It has no state of its own: on
// request the dispatcher builds the list from its entries and the frequently run rows, which
// costs a walk over all entries.

const (
	// longRun is the duration from which Rows reports a run.
	longRun = time.Second
	// MaxRows limits the rows that Rows returns for one observer.
	MaxRows = 64
)

// Row is a conspicuous row of an observer.
type Row struct {
	Row string
	// Running is the current duration of its run; 0 if it is not running or for less than longRun.
	Running time.Duration
	Overdue bool // the run has exceeded its deadline and was abandoned
	// Retries is the number of consecutive runs that did not count as failed: conflicts and
	// unavailable nodes; 0 below contendedRetries.
	Retries  int
	Unserved int // retries that were not conflicts
	Runs     int // runs within frequentWindow, if at least frequentRuns; otherwise 0
	// Cycle names the observers by which the row sets itself off, if its runs are slowed down for that, as
	// "ping → pong → ping". Pause is the current pause between them.
	Cycle string
	Pause time.Duration
}

// Rows returns, for each observer in the order of registration, at most MaxRows rows whose run
// takes long, has been repeated many times, recurs frequently, or is slowed as a loop; the longest
// running first. It fails with ctx's error, or if the dispatcher has stopped.
func (d *Dispatcher) Rows(ctx context.Context) ([][]Row, error) {
	var rows [][]Row
	if err := d.onDispatcher(ctx, func(a *dispatcherActor) { rows = a.rows() }); err != nil {
		return nil, err // the dispatcher may still write rows
	}
	return rows, nil
}

func (a *dispatcherActor) rows() (all [][]Row) {
	now := time.Now()
	found := make(map[*registeredObserver][]Row, len(a.order))
	for _, e := range a.entries {
		if row, odd := e.row(now); odd {
			found[e.obs] = append(found[e.obs], row)
		}
	}
	for _, l := range a.order {
		rows := found[l]
		// A row that runs repeatedly may have no entry at this moment, because its last run has
		// just ended.
		for name, runs := range l.frequent.rows(now) {
			if i := slices.IndexFunc(rows, func(r Row) bool { return r.Row == name }); i >= 0 {
				rows[i].Runs = runs
			} else {
				rows = append(rows, Row{Row: name, Runs: runs})
			}
		}
		for name, c := range a.loops.rows(l, now) {
			i := slices.IndexFunc(rows, func(r Row) bool { return r.Row == name })
			if i < 0 {
				i, rows = len(rows), append(rows, Row{Row: name})
			}
			rows[i].Cycle, rows[i].Pause = c.cycle, c.pause
		}
		// The worst rows come first, so that MaxRows cuts off the others.
		slices.SortFunc(rows, func(a, b Row) int {
			return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Retries, a.Retries),
				cmp.Compare(b.Cycle, a.Cycle), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Row, b.Row))
		})
		all = append(all, rows[:min(len(rows), MaxRows)])
	}
	return all
}

// row describes the entry, and reports whether it is conspicuous.
func (e *entry) row(now time.Time) (row Row, odd bool) {
	row = Row{Row: e.cell.Row}
	// A few repetitions are normal.
	if e.trouble != nil {
		row.Retries, row.Unserved = e.retries, e.unserved
	}
	if e.run != nil && now.Sub(e.run.began) >= longRun {
		row.Running, row.Overdue = now.Sub(e.run.began), e.run.phase.Load() == phaseAbandoned
	}
	return row, row.Retries > 0 || row.Running > 0
}
