package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// latency is the name of the section.
const latency = "latency"

// pause is the time between two changes, in which the node becomes idle again.
const pause = 2 * time.Millisecond

// measureLatency commits one change at a time on an idle node, and measures the time until its
// observer's function starts.
func measureLatency(ctx context.Context, o options, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "percolator-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	started := make(chan time.Time, 1)
	//nolint:unparam // the type of an observer has an error
	begin := func(context.Context, *percolator.Tx, percolator.Notification) error {
		select {
		case started <- time.Now():
		default: // a second run of the same change: a conflict
		}
		return nil
	}
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Observers = func(r *percolator.Registry) { r.Strong("bench", column, begin) }
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(ctx)) }()
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return err
	}
	var called, returned []time.Duration
	for i := range o.changes + o.changes/10 {
		fromCall, fromReturn, err := oneChange(ctx, n.DB(), i, started)
		if err != nil {
			return err
		}
		if i >= o.changes/10 { // after a warm-up
			called, returned = append(called, fromCall), append(returned, fromReturn)
		}
	}
	_, err = fmt.Fprintf(out, "\nlatency, idle node, %d changes\n"+
		"  from the commit's return to the observer's start: p50 %v, p99 %v (target: p50 below 3ms; a Postgres SKIP LOCKED queue: 1.4ms to 1.8ms, not measured here)\n"+
		"  from the commit's call to the observer's start:   p50 %v, p99 %v\n", o.changes,
		quantile(returned, 0.5).Round(precision), quantile(returned, 0.99).Round(precision),
		quantile(called, 0.5).Round(precision), quantile(called, 0.99).Round(precision))
	return err
}

// oneChange commits a change and waits for its observer. If the observer starts before Commit
// has returned, the latency from the return counts as 0.
func oneChange(ctx context.Context, db *percolator.DB, i int,
	started <-chan time.Time) (fromCall, fromReturn time.Duration, err error) {
	called := time.Now()
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set(row(0, i), column, payload)
		return nil
	}); err != nil {
		return 0, 0, err
	}
	returned := time.Now()
	select {
	case at := <-started:
		fromCall, fromReturn = at.Sub(called), max(0, at.Sub(returned))
	case <-time.After(time.Minute):
		return 0, 0, errors.New("no observer ran within a minute")
	}
	if err := db.WaitIdle(ctx); err != nil {
		return 0, 0, err
	}
	time.Sleep(pause)
	return fromCall, fromReturn, nil
}
