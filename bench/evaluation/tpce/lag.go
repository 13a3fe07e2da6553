package tpce

import (
	"context"
	"fmt"
	"slices"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// lagTable has the lags of the brokers' totals.
const lagTable = "from a commission's commit to the commit of its broker's total"

// ledger is the history of one broker.
type ledger struct {
	added  []percolator.Timestamp // commits of commissions
	totals []total
}

// total is a version of a broker's totals.
type total struct {
	at     percolator.Timestamp
	trades int64
}

// readLedgers returns what has changed since a timestamp, once no observer has anything to run.
func readLedgers(ctx context.Context, db *percolator.DB, since percolator.Timestamp) (map[string]*ledger, error) {
	if err := db.WaitIdle(ctx); err != nil {
		return nil, err
	}
	var end percolator.Timestamp
	err := db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
		end = s.StartTS()
		return nil
	})
	if err != nil {
		return nil, err
	}
	ledgers := map[string]*ledger{}
	rows := percolator.Rows(brokerageTable).Columns(brokerColumn.Name, commissionColumn.Name)
	for c, err := range db.Changes(ctx, since, rows) {
		switch {
		case err != nil:
			return nil, err
		case c.Resolved >= end:
			return ledgers, nil
		case c.Resolved != 0 || c.CommitTS > end:
			continue
		}
		of := ledgers[brokerOf(c.Row)]
		if of == nil {
			of = &ledger{}
			ledgers[brokerOf(c.Row)] = of
		}
		if c.Column == commissionColumn {
			of.added = append(of.added, c.CommitTS)
			continue
		}
		t, commission := total{at: c.CommitTS}, int64(0)
		if err := decode(c.Value, &t.trades, &commission); err != nil {
			return nil, err
		}
		of.totals = append(of.totals, t)
	}
	return nil, fmt.Errorf("tpce: the changes ended before timestamp %d was resolved", end)
}

// lags calls record with the time of each commission's commit and with its lag: how much later the
// broker's total counted as many trades as commissions had been committed by that time. The last
// total must include all commissions.
func (l *ledger) lags(record func(at time.Time, lag time.Duration)) error {
	slices.Sort(l.added)
	if len(l.added) > 0 && len(l.totals) == 0 {
		return fmt.Errorf("tpce: %d commissions were committed, but no total", len(l.added))
	}
	next := 0
	for i, at := range l.added {
		left := int64(len(l.added) - i - 1) // later commissions, which the total need not include
		for l.totals[next].trades < l.totals[len(l.totals)-1].trades-left {
			next++
		}
		record(at.Time(), l.totals[next].at.Time().Sub(at.Time()))
	}
	return nil
}

// period is a part of a measurement.
type period struct {
	name       string
	begin, end time.Time
}

// recordLags records the lags of the commissions that were committed in each period.
func recordLags(ctx context.Context, r *harness.Run, row string, db *percolator.DB,
	since percolator.Timestamp, periods ...period) error {
	ledgers, err := readLedgers(ctx, db, since)
	if err != nil {
		return err
	}
	found := make([]*harness.Latencies, len(periods))
	for i := range found {
		found[i] = harness.NewLatencies()
	}
	for broker, l := range ledgers {
		err := l.lags(func(at time.Time, lag time.Duration) {
			for i, p := range periods {
				if !at.Before(p.begin) && at.Before(p.end) {
					found[i].Record(lag)
				}
			}
		})
		if err != nil {
			return fmt.Errorf("broker %s: %w", broker, err)
		}
	}
	for i, p := range periods {
		r.Value(lagTable, row, "ms p50 "+p.name, found[i].Millis(0.5))
		r.Value(lagTable, row, "ms p99 "+p.name, found[i].Millis(0.99))
	}
	return nil
}
