// Package periodic does work again and again, once in the whole cluster each time, whichever
// nodes live: reports, expiry, polling of what cannot call.
//
// A job is a row of a table. Its weak observer does the work and sets a timer
// (percolator.Tx.NotifyAfter) for the next time in one transaction, so there is always a
// next time, and nothing is to be done when a node dies. When that is, the observer writes
// into the row: a notification that comes too early, or twice, finds that it is not due.
package periodic

import (
	"context"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Job is work that is done again and again.
type Job struct {
	Name  string        // its row, and its observer's name in the cluster
	Every time.Duration // from the start of the work to the next; at least MinEvery
	// Do does the work in a transaction that may run again: what it does outside of it has
	// to bear repetition. After an error it is tried again as any observer, with a backoff,
	// and parked after too many (percolator.MaxAttempts): then the job stands still until
	// it is replayed.
	Do func(ctx context.Context, tx *percolator.Tx) error
}

// MinEvery is the shortest period: timers are not more precise.
const MinEvery = time.Second

// Jobs are the jobs of one table. The zero value is of no use; see New.
type Jobs struct {
	table string
	jobs  []Job
}

// New returns the jobs, which are kept in the table: their observers' own. It panics with
// percolator.ErrInvalid if a job makes no sense, a fault of the program.
func New(table string, jobs ...Job) *Jobs {
	for _, j := range jobs {
		if table == "" || j.Name == "" || j.Every < MinEvery || j.Do == nil {
			panic(fmt.Errorf("%w: periodic job %q in table %q: every %v, at least %v, with a function",
				percolator.ErrInvalid, j.Name, table, j.Every, MinEvery))
		}
	}
	return &Jobs{table: table, jobs: jobs}
}

// Register adds an observer for each job. Call Start once the node serves, as by app.OnStart.
func (js *Jobs) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	for _, j := range js.jobs {
		r.Weak(j.Name, js.wake(j), func(ctx context.Context, tx *percolator.Tx,
			_ percolator.Notification) error {
			return js.run(ctx, tx, j)
		}, opts...)
	}
}

// Start begins the jobs that have never run, and those that are due. It may be called on
// every start of every node. It sets a timer for the others: after a restore from a
// backup, which has no timers, there would be none.
func (js *Jobs) Start(ctx context.Context, db *percolator.DB) error {
	return db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) error {
		for _, j := range js.jobs {
			due, known, err := js.next().Get(ctx, tx, j.Name)
			if err != nil {
				return err
			}
			wait := time.Duration(due - tx.StartTS().Time().UnixNano())
			if !known || wait <= 0 {
				tx.Notify(j.Name, js.wake(j))
			} else {
				tx.NotifyAfter(j.Name, js.wake(j), wait)
			}
		}
		return nil
	})
}

// Next returns when the job is due next; ok is false if it has never run.
func (js *Jobs) Next(ctx context.Context, r percolator.Reader, name string) (due time.Time,
	ok bool, err error) {
	ns, ok, err := js.next().Get(ctx, r, name)
	return time.Unix(0, ns), ok, err
}

// wake is a column for each job, because a column has one observer.
func (js *Jobs) wake(j Job) percolator.Column {
	return percolator.Column{Table: js.table, Name: "wake " + j.Name}
}

func (js *Jobs) next() percolator.TypedColumn[int64] {
	col := percolator.Column{Table: js.table, Name: "next_unix_ns"}
	return percolator.Typed(col, percolator.Integer[int64]())
}

// run does the job if it is due. Two runs at once both write when it is due next, so that
// one of them commits.
func (js *Jobs) run(ctx context.Context, tx *percolator.Tx, j Job) error {
	due, known, err := js.next().Get(ctx, tx, j.Name)
	if err != nil {
		return err
	}
	now := tx.StartTS().Time().UnixNano()
	if known && now < due {
		return nil // a notification too many: the timer of the run before this one is set
	}
	if err := j.Do(ctx, tx); err != nil {
		return err
	}
	js.next().Set(tx, j.Name, now+int64(j.Every))
	tx.NotifyAfter(j.Name, js.wake(j), j.Every)
	return nil
}
