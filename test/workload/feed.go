package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	percolator "github.com/percolator-go/percolator"
)

// Feed is exact counting under faults: workers change rows, each once and with whatever
// outcome, until the time is up or w.Rows rows are used. Then it waits until no notification is
// pending and checks: every existing row was counted exactly once, rows whose change was
// acknowledged exist, and those whose change was refused do not.
func (w Counting) Feed(ctx context.Context, db *percolator.DB, l Load) error {
	if err := patiently(ctx, func() error {
		return db.CreateTable(ctx, percolator.TableSpec{Name: w.table()})
	}); err != nil {
		return err
	}
	run, err := newRun(ctx, db)
	if err != nil {
		return err
	}
	f := &fed{Counting: w, there: map[string]bool{}}
	err = l.run(ctx, func(ctx context.Context, worker int, _ *rand.Rand) error {
		return f.feed(ctx, l.db(db, worker), run)
	})
	return errors.Join(err, patiently(ctx, func() error { return f.check(ctx, db) }))
}

// fed records the outcomes of a run's rows.
type fed struct {
	Counting

	mu    sync.Mutex
	last  int
	there map[string]bool // by row: must exist (true) or must not (false); no entry: may exist
}

// feed changes the next row.
func (f *fed) feed(ctx context.Context, db *percolator.DB, run string) error {
	f.mu.Lock()
	f.last++
	n := f.last
	f.mu.Unlock()
	if n > f.Rows {
		<-ctx.Done()
		return ctx.Err()
	}
	row := fmt.Sprintf("row/%s/%08d", run, n)
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row, f.changed(), []byte("x"))
		return nil
	}, percolator.Name("feed"))
	if done, unknown := outcome(err); !unknown {
		f.mu.Lock()
		f.there[row] = done
		f.mu.Unlock()
	}
	return err
}

// check compares the rows, the traces of their observers' commits, and the counters,
// those of earlier runs too.
func (f *fed) check(ctx context.Context, db *percolator.DB) error {
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	traces, sum, err := f.traces(ctx, s, "trace/")
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for cell, err := range s.Scan(ctx, percolator.Rows(f.table()).Prefix("row/"), f.changed()) {
		if err != nil {
			return err
		}
		found[cell.Row] = true
	}
	if err := f.compare(found, traces); err != nil {
		return err
	}
	if f.Twin {
		twin, _, err := f.traces(ctx, s, "twin/")
		if err == nil {
			err = f.compare(found, twin)
		}
		if err != nil {
			return fmt.Errorf("by the second observer of the column: %w", err)
		}
	}
	return f.checkCounters(ctx, s, sum)
}

func (f *fed) compare(found map[string]bool, traces map[string]int) error {
	for row, there := range f.there {
		if found[row] != there {
			return fmt.Errorf("workload: exact counting: row %s: its change was acknowledged: %t; it exists: %t", row,
				there, found[row])
		}
	}
	for row := range found {
		if traces[row] != 1 {
			return fmt.Errorf("workload: exact counting: row %s was counted %d times (%d of %d rows have traces)", row, traces[row], len(traces), len(found))
		}
	}
	for row := range traces {
		if !found[row] {
			return fmt.Errorf("workload: exact counting: row %s was counted and is not there", row)
		}
	}
	return nil
}
