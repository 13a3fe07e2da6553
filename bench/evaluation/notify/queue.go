package notify

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
)

// queue is a table of jobs, as a program would use one in a database: each change writes the job of a
// row, and the observer reads the job and writes its result in the same row. Changes go through the rows
// in turn, so every row is written again and again.
type queue struct {
	name string
	job  percolator.Column
	done percolator.Column
	next atomic.Uint64 // number of the next change
	rows []row
}

// row holds the changes of a row whose observer has not started.
type row struct {
	mu      sync.Mutex
	waiting []*change
}

type change struct {
	number    uint64
	committed bool // guarded by the row's mu
	started   chan time.Time
}

func newQueue(name string, rows int) *queue {
	return &queue{
		name: name, job: percolator.Column{Table: name, Name: "job"}, done: percolator.Column{Table: name, Name: "done"},
		rows: make([]row, rows),
	}
}

func (q *queue) key(i int) string { return fmt.Sprintf("job-%06d", i) }

// register registers the observer. Its deadline must be shorter than the shortest history that a
// node of this package keeps.
func (q *queue) register(r *percolator.Registry) {
	r.Strong(q.name, q.job, q.observe, percolator.Deadline(5*time.Second))
}

func (q *queue) observe(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	at := time.Now()
	job, _, err := tx.Get(ctx, n.Row, q.job)
	if err != nil {
		return err
	}
	var i int
	if _, err := fmt.Sscanf(n.Row, "job-%d", &i); err != nil {
		return err
	}
	q.rows[i].start(binary.BigEndian.Uint64(job), at)
	tx.Set(n.Row, q.done, job)
	return nil
}

// start tells the waiting calls of change when a run started that has read the change with this
// number: the call for this number, those for lower numbers of the row, and those whose commits have
// returned.
func (r *row) start(number uint64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(c *change) bool {
		if c.number > number && !c.committed {
			return false
		}
		c.started <- at
		return true
	})
}

// change writes the next job and waits for the start of its observer. It returns the time from the
// commit's return to that; 0 if the observer started before the commit had returned.
func (q *queue) change(ctx context.Context, db *percolator.DB) (time.Duration, error) {
	number := q.next.Add(1)
	i := int(number) % len(q.rows)
	r, c := &q.rows[i], &change{number: number, started: make(chan time.Time, 1)}
	r.mu.Lock()
	r.waiting = append(r.waiting, c)
	r.mu.Unlock()
	err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(q.key(i), q.job, jobOf(number))
		return nil
	})
	if err != nil {
		return 0, err
	}
	returned := time.Now()
	r.mu.Lock()
	c.committed = true
	r.mu.Unlock()
	select {
	case at := <-c.started:
		return max(0, at.Sub(returned)), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: no observer has started for change %d: %w", q.name, number, ctx.Err())
	}
}

// jobBytes is the size of a job.
const jobBytes = 100

// jobOf returns the job of a change, which begins with its number.
func jobOf(number uint64) []byte {
	return append(binary.BigEndian.AppendUint64(nil, number), make([]byte, jobBytes-8)...)
}

// at makes changes at a constant rate. It returns the latencies from the time at which a commit was due,
// and from its return, to the start of its observer.
func (q *queue) at(ctx context.Context, db *percolator.DB, rate float64, d time.Duration) (due, returned *harness.Latencies, err error) {
	const limit = 20_000
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	returned = harness.NewLatencies()
	due, err = harness.OpenLoop(ctx, rate, d, limit, func(ctx context.Context, _ int) error {
		took, err := q.change(ctx, db)
		if err == nil {
			returned.Record(took)
		}
		return err
	})
	return due, returned, err
}

// check waits until all observers have run, and fails if one of them has not handled the last job of its
// row.
func (q *queue) check(ctx context.Context, db *percolator.DB) error {
	if err := db.WaitIdle(ctx); err != nil {
		return err
	}
	return db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		for r, err := range percolator.ScanRows(ctx, s, percolator.Rows(q.name), q.job, q.done) {
			if err != nil {
				return err
			}
			job, _ := r.Get(q.job)
			if done, _ := r.Get(q.done); !bytes.Equal(job, done) {
				return fmt.Errorf("%s: the observer has not handled the last job of row %s", q.name, r.Row)
			}
		}
		return nil
	})
}
