package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
)

var step = percolator.Column{Table: Table, Name: "step"}

// Monotonic has workers increment a cell and write a row for each number, in transactions over
// several tablets. The order of commit timestamps, the order of numbers, and real time must
// agree; every number up to the last has one row, which names the step that wrote it.
func Monotonic(ctx context.Context, db *percolator.DB, l Load) error {
	run, err := newRun(ctx, db)
	if err != nil {
		return err
	}
	m := &steps{run: "monotonic" + run, began: time.Now(), tried: map[string]bool{}}
	err = l.run(ctx, func(ctx context.Context, worker int, _ *rand.Rand) error {
		return m.step(ctx, l.db(db, worker))
	})
	return errors.Join(err, m.order(), patiently(ctx, func() error { return m.check(ctx, db) }))
}

// steps is the history of a run.
type steps struct {
	run   string
	began time.Time

	mu    sync.Mutex
	last  int
	tried map[string]bool // by mark: whether the step may have been committed
	done  []stepDone
}

// stepDone is an acknowledged step.
type stepDone struct {
	number        int
	mark          string
	start, commit percolator.Timestamp
	call, ret     time.Duration
}

// step executes one step, in one attempt.
func (m *steps) step(ctx context.Context, db *percolator.DB) error {
	m.mu.Lock()
	m.last++
	d := stepDone{mark: strconv.Itoa(m.last), call: time.Since(m.began)}
	m.mu.Unlock()
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	n, err := number(ctx, tx, row(m.run, 0))
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	d.number, d.start = n+1, tx.StartTS()
	tx.Set(row(m.run, 0), value, strconv.AppendInt(nil, int64(d.number), 10))
	tx.Set(row(m.run, d.number), step, []byte(d.mark))
	d.commit, err = tx.Commit(ctx)
	done, unknown := outcome(err)
	d.ret = time.Since(m.began)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tried[d.mark] = done || unknown
	if done {
		m.done = append(m.done, d)
	}
	return err
}

// order compares the acknowledged steps with one another.
func (m *steps) order() error {
	slices.SortFunc(m.done, func(a, b stepDone) int { return a.number - b.number })
	var latest time.Duration // the latest call so far
	for i, d := range m.done {
		if d.commit <= d.start {
			return fmt.Errorf("workload: monotonic: number %d started at %d, which is not below its commit at %d",
				d.number, d.start, d.commit)
		}
		if i > 0 {
			before := m.done[i-1]
			if before.number == d.number || before.commit > d.start {
				return fmt.Errorf("workload: monotonic: numbers %d and %d are equal, or their transactions overlap: "+
					"%d…%d and %d…%d", before.number, d.number,
					before.start, before.commit, d.start, d.commit)
			}
		}
		if d.ret < latest {
			return fmt.Errorf("workload: monotonic: number %d was there at %v, before a smaller one was begun, at %v", d.number, d.ret, latest)
		}
		latest = max(latest, d.call)
	}
	return nil
}

// check reads all rows.
func (m *steps) check(ctx context.Context, db *percolator.DB) error {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	last, err := number(ctx, s, row(m.run, 0))
	if err != nil {
		return err
	}
	keys := make([]percolator.CellKey, last)
	for i := range keys {
		keys[i] = percolator.CellKey{Row: row(m.run, i+1), Column: step}
	}
	cells, err := s.GetMulti(ctx, keys...)
	if err != nil {
		return err
	}
	marks := make(map[string]string, last)
	for _, c := range cells {
		marks[c.Row] = string(c.Value)
	}
	for _, d := range m.done {
		if marks[row(m.run, d.number)] != d.mark {
			return fmt.Errorf("workload: monotonic: number %d, committed at %d by %s, is not there: the last is %d", d.number, d.commit, d.mark, last)
		}
	}
	seen := map[string]bool{}
	for n := 1; n <= last; n++ {
		mark := marks[row(m.run, n)]
		if !m.tried[mark] || seen[mark] {
			return fmt.Errorf("workload: monotonic: number %d is of step %q, which was refused, has "+
				"another number, or is unknown", n, mark)
		}
		seen[mark] = true
	}
	return nil
}
