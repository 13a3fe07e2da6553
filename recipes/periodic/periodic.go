// Package periodic runs jobs periodically, once per period in the whole cluster, whichever
// nodes are alive: for example reports, expiry, or polling of external systems.
//
// A job is a row of a table. Its weak observer does the work and sets the timer of the next
// period (percolator.Tx.NotifyAfter) in one transaction, so that the job continues after the
// death of any node. The observer also records the time of the next run in the row: a
// notification that is early or duplicate finds that the job is not due.
package periodic

import (
	"context"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Job is a periodic job.
type Job struct {
	Name string // the job's row, and its observer's name in the cluster
	// Every is the minimum time between the starts of two runs: the timer of the next run counts
	// from the commit of the last one. At least MinEvery.
	Every time.Duration
	// Do does the work in a transaction that may be retried, so its effects outside the
	// transaction must be repeatable. After an error it is retried with backoff, as any
	// observer is, and parked after percolator.MaxAttempts; the job then stops until it is
	// replayed or Start is called again.
	Do func(ctx context.Context, tx *percolator.Tx) error
}

// MinEvery is the minimum of Job.Every; timers are not more precise.
const MinEvery = time.Second

// Jobs are the jobs of one table. Use New to create one.
type Jobs struct {
	table string
	jobs  []Job
}

// New returns the jobs. The table is reserved for them. New panics with percolator.ErrInvalid if
// a job is invalid.
func New(table string, jobs ...Job) *Jobs {
	for _, j := range jobs {
		if table == "" || j.Name == "" || j.Every < MinEvery || j.Do == nil {
			panic(fmt.Errorf("%w: periodic job %q in table %q: table, Name and Do are required, "+
				"and Every, %v, must be at least %v",
				percolator.ErrInvalid, j.Name, table, j.Every, MinEvery))
		}
	}
	return &Jobs{table: table, jobs: jobs}
}

// Register registers an observer for each job, and the table. Call Start once the node serves, as
// by app.OnStart.
func (js *Jobs) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	for _, j := range js.jobs {
		r.Weak(j.Name, js.wake(j), func(ctx context.Context, tx *percolator.Tx,
			_ percolator.Notification) error {
			return js.run(ctx, tx, j)
		}, opts...)
	}
}

// Start triggers the jobs that have never run or are due, and sets a timer for the others,
// which may be missing after a restore: only an operator's backup contains timers. It may be
// called at every start of every node.
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

// Next returns the time of the next run; ok is false if the job has never run.
func (js *Jobs) Next(ctx context.Context, r percolator.Reader, name string) (due time.Time,
	ok bool, err error) {
	ns, ok, err := js.next().Get(ctx, r, name)
	return time.Unix(0, ns), ok, err
}

// wake returns the weak column of a job; each job has its own, so that its observer gets no
// notifications of other jobs.
func (js *Jobs) wake(j Job) percolator.Column {
	return percolator.Column{Table: js.table, Name: "wake " + j.Name}
}

func (js *Jobs) next() percolator.TypedColumn[int64] {
	col := percolator.Column{Table: js.table, Name: "next_unix_ns"}
	return percolator.Typed(col, percolator.Integer[int64]())
}

// run does the job if it is due. Concurrent runs write the same cell, so only one commits.
func (js *Jobs) run(ctx context.Context, tx *percolator.Tx, j Job) error {
	due, known, err := js.next().Get(ctx, tx, j.Name)
	if err != nil {
		return err
	}
	now := tx.StartTS().Time().UnixNano()
	if known && now < due {
		return nil // duplicate notification: the previous run has set the timer
	}
	if err := j.Do(ctx, tx); err != nil {
		return err
	}
	js.next().Set(tx, j.Name, now+int64(j.Every))
	tx.NotifyAfter(j.Name, js.wake(j), j.Every)
	return nil
}
