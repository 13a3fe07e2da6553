package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node"
)

// Fan-out: one change whose observer writes many rows in its run, each of which triggers a run of
// another observer, compared with the same rows written by many small transactions.

// fanout is the name of the section.
const fanout = "fan-out"

var (
	fanSource = percolator.Column{Table: "fan", Name: "source"}
	fanLeaf   = percolator.Column{Table: "leaves", Name: "leaf"}
	fanDone   = percolator.Column{Table: "leaves", Name: "done"}
)

// measureFanout measures small transactions and one change in turn, for o.rounds rounds, each on a
// fresh store.
func measureFanout(ctx context.Context, o options, out io.Writer) (err error) {
	stop, err := o.profile.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := fmt.Fprintf(out, "\n%s, %d rows, each with a run of an observer\n", fanout, o.leaves); err != nil {
		return err
	}
	for range o.rounds {
		var small time.Duration
		for _, one := range []bool{false, true} {
			written, done, cpu, err := fanOnce(ctx, o, one)
			if err != nil {
				return err
			}
			what := fmt.Sprintf("%d rows a transaction", loadBatch)
			small = cmp.Or(small, done)
			if one {
				what = "one change"
			}
			if _, err := fmt.Fprintf(out, "  %-22s written after %6.2f s, all runs done after %6.2f s (%.2f), "+
				"%v CPU a row\n", what+":", written.Seconds(), done.Seconds(), done.Seconds()/small.Seconds(),
				(cpu / time.Duration(o.leaves)).Round(time.Microsecond)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fanOnce writes the rows by one change or, unless one is set, by small transactions. It returns
// the times from the first call until the rows were written and until the last run ended, and the
// processor time.
func fanOnce(ctx context.Context, o options, one bool) (written, done, cpu time.Duration, err error) {
	dir, err := os.MkdirTemp(o.dir, "percolator-bench-")
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Observers = func(r *percolator.Registry) {
		r.Strong("fan", fanSource, func(_ context.Context, tx *percolator.Tx, _ percolator.Notification) error {
			for i := range o.leaves {
				tx.Set(row(0, i), fanLeaf, payload)
			}
			return nil
		}, percolator.Deadline(5*time.Minute))
		r.Strong("leaf", fanLeaf, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			tx.Set(n.Row, fanDone, payload)
			return nil
		})
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, n.Close(ctx)) }()
	began, used := time.Now(), turns.CPU()
	if one {
		err = fanFromOne(ctx, n.DB(), o.leaves)
	} else {
		err = loadRows(ctx, n.DB(), o.leaves, fanLeaf, payload)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	written = time.Since(began)
	if err := n.DB().WaitIdle(ctx); err != nil {
		return 0, 0, 0, err
	}
	return written, time.Since(began), turns.CPU() - used, nil
}

// fanFromOne commits the one change and waits until the run that it triggers has committed.
func fanFromOne(ctx context.Context, db *percolator.DB, leaves int) error {
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("source", fanSource, payload)
		return nil
	}); err != nil {
		return err
	}
	for {
		s, err := db.Snapshot(ctx)
		if err != nil {
			return err
		}
		_, ok, err := s.Get(ctx, row(0, leaves-1), fanLeaf)
		if err = errors.Join(err, s.Close()); ok || err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}
