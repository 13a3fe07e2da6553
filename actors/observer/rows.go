package observer

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
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

// Rows returns, for each observer in the order of registration, at most MaxRows rows whose run
// takes long, has been repeated many times, recurs frequently, or is slowed as a loop; the longest
// running first. It fails with ctx's error, or if the dispatcher has stopped.
func (d *Dispatcher) Rows(ctx context.Context) ([][]*pb.ObserverRow, error) {
	var rows [][]*pb.ObserverRow
	if err := d.onDispatcher(ctx, func(a *dispatcherActor) { rows = a.rows() }); err != nil {
		return nil, err // the dispatcher may still write rows
	}
	return rows, nil
}

func (a *dispatcherActor) rows() (all [][]*pb.ObserverRow) {
	now := time.Now()
	found := make(map[*registeredObserver][]*pb.ObserverRow, len(a.order))
	for _, e := range a.entries {
		if row := e.row(now); row != nil {
			found[e.obs] = append(found[e.obs], row)
		}
	}
	for _, l := range a.order {
		rows := found[l]
		// A row that runs repeatedly may have no entry at this moment, because its last run has
		// just ended.
		named := func(name string) *pb.ObserverRow {
			i := slices.IndexFunc(rows, func(r *pb.ObserverRow) bool { return wire.String(r.Row) == name })
			if i < 0 {
				i, rows = len(rows), append(rows, &pb.ObserverRow{Row: wire.Bytes(name)})
			}
			return rows[i]
		}
		for name, runs := range l.frequent.rows(now) {
			named(name).Runs = uint32(runs)
		}
		for name, c := range a.loops.rows(l, now) {
			row := named(name)
			row.Cycle, row.PauseMs = c.cycle, uint64(c.pause.Milliseconds())
		}
		// The worst rows come first, so that MaxRows cuts off the others.
		slices.SortFunc(rows, func(a, b *pb.ObserverRow) int {
			return cmp.Or(cmp.Compare(b.RunningMs, a.RunningMs), cmp.Compare(b.Retries, a.Retries),
				cmp.Compare(b.Cycle, a.Cycle), cmp.Compare(b.Runs, a.Runs), bytes.Compare(a.Row, b.Row))
		})
		all = append(all, rows[:min(len(rows), MaxRows)])
	}
	return all
}

// row describes the entry if it is conspicuous: if it runs for at least longRun, or has had at least
// contendedRetries runs without a result, since a few repetitions are normal. Otherwise it returns nil.
func (e *entry) row(now time.Time) *pb.ObserverRow {
	row := &pb.ObserverRow{Row: wire.Bytes(e.cell.Row)}
	if e.trouble != nil {
		row.Retries, row.Unserved = uint32(e.retries), uint32(e.unserved)
	}
	if e.run != nil && now.Sub(e.run.began) >= longRun {
		row.RunningMs = uint64(now.Sub(e.run.began).Milliseconds())
		row.Overdue = e.run.phase.Load() == phaseAbandoned
	}
	if row.Retries == 0 && row.RunningMs == 0 {
		return nil
	}
	return row
}
