package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// The workload of delayed runs: durable timers and debounced observers. It records in memory
// which timers it has committed, so the process that registers the observers must also check, as
// in a simulation.

// Timers sets timers (Tx.NotifyAfter), and changes rows of a debounced observer in bursts. Each
// committed timer fires, and none before it is due; a debounced run starts once its row has not
// changed for the debounce, or after the maximum delay.
type Timers struct {
	mu     sync.Mutex
	timers map[string]dueTime // that are known to be committed, by row
	bursts map[string]bool    // rows that were changed
	early  error              // the first debounced run that started too early
}

// dueTime is the due time of a timer, relative to its commit.
type dueTime struct {
	at    percolator.Timestamp
	after time.Duration
}

var (
	timersTable = "timers"
	timersDue   = percolator.Column{Table: timersTable, Name: "due"}
	timersFired = percolator.Column{Table: timersTable, Name: "fired"}
	restChanged = percolator.Column{Table: timersTable, Name: "changed"}
	restRested  = percolator.Column{Table: timersTable, Name: "rested"}
)

const (
	timersLongest = 3 * time.Second
	timersRest    = 400 * time.Millisecond // the debounce
	// restAtMost is the maximum delay of a row that keeps changing, in debounces
	// (percolator.Debounce).
	restAtMost = 10
)

// Table is what the observers need.
func (w *Timers) Table() percolator.TableSpec { return percolator.TableSpec{Name: timersTable} }

// Register registers the observers.
func (w *Timers) Register(r *percolator.Registry) {
	r.Weak("timers", timersDue, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		_, again, err := tx.Get(ctx, n.Row, timersFired)
		if err == nil && !again {
			tx.Set(n.Row, timersFired, []byte(strconv.FormatUint(uint64(tx.StartTS()), 10)))
		}
		return err
	})
	r.Strong("timers rest", restChanged, func(ctx context.Context, tx *percolator.Tx,
		n percolator.Notification) error {
		began, err := numberAt(ctx, tx, n.Row, restChanged)
		if err != nil {
			return err
		}
		age := tx.StartTS().Time().Sub(n.CommitTS.Time())
		waited := time.Since(time.UnixMilli(int64(began)))
		if age < timersRest && waited < restAtMost*timersRest {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.early = errors.Join(w.early, fmt.Errorf("workload: timers: DEBOUNCE-EARLY: "+
				"a run for row %s began %v after its last change and %v after its first", n.Row, age, waited))
			return nil
		}
		tx.Set(n.Row, restRested, []byte("yes"))
		return nil
	}, percolator.Debounce(timersRest))
}

// Run is the workload.
func (w *Timers) Run(ctx context.Context, db *percolator.DB, l Load) error {
	w.mu.Lock()
	w.timers, w.bursts = map[string]dueTime{}, map[string]bool{}
	w.mu.Unlock()
	return l.run(ctx, func(ctx context.Context, worker int, rng *rand.Rand) error {
		row := fmt.Sprintf("%d.%d.%d", worker, l.Seed, rng.Uint64())
		if rng.IntN(4) == 0 {
			return w.burst(ctx, l.db(db, worker), "burst/"+row, rng)
		}
		one := dueTime{after: time.Duration(rng.Int64N(int64(timersLongest)))}
		work := time.Duration(rng.Int64N(int64(timersLongest)))
		err := l.db(db, worker).Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
			// The transaction begins well before it commits, and the timer counts from the commit.
			if _, _, err := tx.Get(ctx, row, timersFired); err != nil {
				return err
			}
			tx.NotifyAfter(row, timersDue, one.after)
			return pause(ctx, work)
		}, percolator.Name("timers"), percolator.CommittedAt(&one.at))
		if err == nil {
			w.mu.Lock()
			w.timers[row] = one
			w.mu.Unlock()
		}
		return err
	})
}

// burst changes a row several times within the debounce.
func (w *Timers) burst(ctx context.Context, db *percolator.DB, row string, rng *rand.Rand) error {
	began := strconv.FormatInt(time.Now().UnixMilli(), 10)
	for range 3 {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, restChanged, []byte(began))
			return nil
		}, percolator.Name("timers"))
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.bursts[row] = true
		w.mu.Unlock()
		if err := pause(ctx, time.Duration(rng.Int64N(int64(timersRest)))); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Check waits until every timer has fired and every debounced run has ended, or ctx ends, and
// checks them. Call it after the faults.
func (w *Timers) Check(ctx context.Context, db *percolator.DB) error {
	for {
		waiting, err := w.compare(ctx, db)
		if err == nil && waiting == "" {
			return nil
		}
		if err != nil && !excused(err) {
			return err
		}
		if late := pause(ctx, time.Second); late != nil {
			return fmt.Errorf("workload: timers: TIMER-LOST: no observer has run for row %q: %w",
				waiting, cmp.Or(err, late))
		}
	}
}

// compare returns a row whose run is missing, or an error if one was too early.
func (w *Timers) compare(ctx context.Context, db *percolator.DB) (waiting string, err error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.Close() }()
	fired, rested := map[string]percolator.Timestamp{}, map[string]bool{}
	for c, err := range s.Scan(ctx, percolator.Rows(timersTable), timersFired, restRested) {
		if err != nil {
			return "", err
		}
		if c.Column == restRested {
			rested[c.Row] = true
			continue
		}
		at, err := strconv.ParseUint(string(c.Value), 10, 64)
		if err != nil {
			return "", err
		}
		fired[c.Row] = percolator.Timestamp(at)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.early != nil {
		return "", w.early
	}
	for row, due := range w.timers {
		at, there := fired[row]
		switch took := at.Time().Sub(due.at.Time()); {
		case !there:
			waiting = row
		case took < due.after.Truncate(time.Millisecond):
			return "", fmt.Errorf("workload: timers: TIMER-EARLY: row %s: a run began %v after the "+
				"timer's commit, and its delay is %v", row, took, due.after)
		}
	}
	for row := range w.bursts {
		if !rested[row] {
			waiting = row
		}
	}
	return waiting, nil
}
