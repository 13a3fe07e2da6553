package observer

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// This file tells operators which rows keep an observer busy. It owns nothing: the
// dispatcher makes the list in a turn of its own when somebody asks, from the cells that
// it has in hand and from the rows that were run for often. That costs a walk over all
// entries.

const (
	// longRun is how long a run goes on before Rows tells of it.
	longRun = time.Second
	// MaxRows bounds the rows that Rows lists for one observer.
	MaxRows = 64
)

// Row is a row of an observer that somebody may wonder about.
type Row struct {
	Row string
	// how long its run has gone on by now; 0: it is not running, or has just begun
	Running time.Duration
	Overdue bool // the run is past its deadline and has been given up
	// runs in a row that came to nothing and were not counted as failed: conflicts, and
	// nodes that did not answer
	Retries  int
	Unserved int // of Retries, those that were no conflicts
	Runs     int // runs in the last seconds, if they are very many
}

// Rows lists, for each observer in the order of registration, the rows whose run goes on
// for long, has been repeated many times, or that are run for again and again; those that
// have run longest come first, MaxRows at most. Errors: ctx's, or that the dispatcher has
// stopped.
func (d *Dispatcher) Rows(ctx context.Context) ([][]Row, error) {
	var rows [][]Row
	if err := d.inTurn(ctx, func(a *dispatcherActor) { rows = a.rows() }); err != nil {
		return nil, err // rows may still be written
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
		// Such a row need not have an entry at this moment: its last run may just have
		// ended.
		for name, runs := range l.frequent.rows(now) {
			if i := slices.IndexFunc(rows, func(r Row) bool { return r.Row == name }); i >= 0 {
				rows[i].Runs = runs
			} else {
				rows = append(rows, Row{Row: name, Runs: runs})
			}
		}
		// The worst come first, so that the cut at MaxRows leaves out the others.
		slices.SortFunc(rows, func(a, b Row) int {
			return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Retries, a.Retries),
				cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Row, b.Row))
		})
		all = append(all, rows[:min(len(rows), MaxRows)])
	}
	return all
}

// row describes the entry, and reports whether there is anything to say of it.
func (e *entry) row(now time.Time) (row Row, odd bool) {
	row = Row{Row: e.cell.Row}
	// A few repetitions are nothing special.
	if e.trouble != nil {
		row.Retries, row.Unserved = e.retries, e.unserved
	}
	if e.run != nil && now.Sub(e.run.began) >= longRun {
		row.Running, row.Overdue = now.Sub(e.run.began), e.run.phase.Load() == phaseAbandoned
	}
	return row, row.Retries > 0 || row.Running > 0
}
