package notify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
)

const (
	drainTable = "dirty cells, worked off"
	cleanTable = "none among clean cells"
	findTable  = "one dirty cell without a hint"
)

// table is a table whose observer of the column in writes the column done.
type table struct {
	name     string
	in, done percolator.Column
	ran      atomic.Int64 // cells handed to the observer, with repetitions
}

func newTable(name string) *table {
	return &table{
		name: name, in: percolator.Column{Table: name, Name: "in"}, done: percolator.Column{Table: name, Name: "done"},
	}
}

// single registers an observer of single changes, batched one of batches.
func (t *table) single(r *percolator.Registry) {
	r.Strong(t.name, t.in, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
		t.ran.Add(1)
		tx.Set(n.Row, t.done, []byte{1})
		return nil
	})
}

func (t *table) batched(r *percolator.Registry) {
	r.StrongBatch(t.name, t.in, func(_ context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
		t.ran.Add(int64(len(changes)))
		for _, n := range changes {
			tx.Set(n.Row, t.done, []byte{1})
		}
		return nil
	})
}

func rowOf(i int) string { return fmt.Sprintf("%08d", i) }

// dirty pauses the observer and writes count rows, each of which is then dirty.
func (t *table) dirty(ctx context.Context, db *percolator.DB, count int) error {
	if _, err := db.Admin().PauseObserver(ctx, t.name); err != nil {
		return err
	}
	const perTransaction = 500
	l := db.Loader(percolator.LoaderConfig{Workers: 8, Backlog: -1})
	for from := 0; from < count; from += perTransaction {
		err := l.Load(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for i := from; i < min(from+perTransaction, count); i++ {
				tx.Set(rowOf(i), t.in, []byte{1})
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return l.Close()
}

// drain resumes the observer and waits until it has run for every dirty cell.
func (t *table) drain(ctx context.Context, db *percolator.DB) (time.Duration, error) {
	began := time.Now()
	if _, err := db.Admin().ResumeObserver(ctx, t.name); err != nil {
		return 0, err
	}
	err := db.WaitIdle(ctx)
	return time.Since(began), err
}

// check fails unless the observer has written its column in exactly count rows.
func (t *table) check(ctx context.Context, db *percolator.DB, count int) error {
	return db.View(ctx, func(ctx context.Context, s *percolator.Snapshot) error {
		done := 0
		for _, err := range s.Scan(ctx, percolator.Rows(t.name).KeysOnly(), t.done) {
			if err != nil {
				return err
			}
			done++
		}
		if done != count {
			return fmt.Errorf("%s: the observer has run for %d of %d rows", t.name, done, count)
		}
		return nil
	})
}

// many measures a million dirty cells, and then the node when all are clean.
func many(ctx context.Context, r *harness.Run) (err error) {
	dir, err := os.MkdirTemp(r.Dir, "notify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	count, one := pick(r, 1_000_000, 2_000), pick(r, 50_000, 500)
	big, small := newTable("big"), newTable("small")
	observers := func(reg *percolator.Registry) {
		big.batched(reg)
		small.single(reg)
	}
	err = withNodeIn(ctx, dir, observers, nil, func(n *node.Node) error {
		if err := idle(ctx, r, "no rows"); err != nil {
			return err
		}
		if err := workOff(ctx, r, n.DB(), small, one, "one in a run"); err != nil {
			return err
		}
		if err := workOff(ctx, r, n.DB(), big, count, "up to 100 in a run"); err != nil {
			return err
		}
		// Wait for the compactions and splits that follow the writes.
		if err := txn.Sleep(ctx, pick(r, 15*time.Second, 0)); err != nil {
			return err
		}
		return idle(ctx, r, fmt.Sprintf("%d rows, all clean", count))
	})
	if err != nil {
		return err
	}
	noHints := func(c *node.Config) { c.Notifications.NoHints = true }
	return withNodeIn(ctx, dir, observers, noHints, func(n *node.Node) error {
		return find(ctx, r, n.DB(), big, count)
	})
}

// workOff makes count cells dirty and measures their observers.
func workOff(ctx context.Context, r *harness.Run, db *percolator.DB, t *table, count int, how string) error {
	row := fmt.Sprintf("%d cells, %s", count, how)
	began := time.Now()
	if err := t.dirty(ctx, db, count); err != nil {
		return err
	}
	r.Value(drainTable, row, "cells made dirty/s", float64(count)/time.Since(began).Seconds())
	cpu := harness.CPUOf()
	took, err := t.drain(ctx, db)
	if err != nil {
		return err
	}
	r.Value(drainTable, row, "observers/s", float64(count)/took.Seconds())
	r.Value(drainTable, row, "µs CPU", float64((harness.CPUOf()-cpu).Microseconds())/float64(count))
	r.Value(drainTable, row, "s", took.Seconds())
	return t.check(ctx, db, count)
}

// idle measures the processor time that a node uses while its scanners find nothing.
func idle(ctx context.Context, r *harness.Run, row string) error {
	d := pick(r, 10*time.Second, 100*time.Millisecond)
	cpu := harness.CPUOf()
	if err := txn.Sleep(ctx, d); err != nil {
		return err
	}
	r.Value(cleanTable, row, "% of a core", 100*(harness.CPUOf()-cpu).Seconds()/d.Seconds())
	return nil
}

// find measures how long scanners look for one dirty cell on a node without hints, so that the scanners'
// pauses are part of it.
func find(ctx context.Context, r *harness.Run, db *percolator.DB, t *table, count int) error {
	for i := range pick(r, 20, 2) {
		before := t.ran.Load()
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(rowOf(i*7919%count), t.in, []byte{2})
			return nil
		})
		if err != nil {
			return err
		}
		began := time.Now()
		if err := db.WaitIdle(ctx); err != nil {
			return err
		}
		if t.ran.Load() == before {
			return errors.New("a dirty cell was not found")
		}
		r.Value(findTable, fmt.Sprintf("among %d clean ones", count), "ms", time.Since(began).Seconds()*1000)
	}
	return nil
}
