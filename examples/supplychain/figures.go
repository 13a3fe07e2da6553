package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/node"
)

// figures loads lists into a temporary node in this process, and compares the cost of each
// advisory, until no run of an observer is left, with that of a batch computation.
func figures(ctx context.Context, call *app.Invocation, verifying bool) (err error) {
	dir, err := os.MkdirTemp("", "supplychain-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Observers = dir, register
	cfg.Listen, cfg.HTTP, cfg.Insecure = "127.0.0.1:0", "", true
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	db := n.DB()
	c := costs{out: call.Stdout}
	measured := c.measured
	if err := measured("load until settled", func() error {
		return errors.Join(loadFiles(ctx, db, call), db.WaitIdle(ctx))
	}); err != nil {
		return err
	}
	var whole *batch
	if err := measured("a batch: reading all, and one search", func() error {
		s, err := db.Snapshot(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		if whole, err = compute(ctx, s); err == nil {
			whole.reach("libc6")
		}
		return err
	}); err != nil {
		return err
	}
	c.unit = c.used
	for i, name := range whole.examples() {
		if err := measure(ctx, db, fmt.Sprintf("EXAMPLE-%d", i), name, len(whole.reach(name)),
			measured); err != nil {
			return err
		}
		if !verifying {
			continue
		}
		if err := measured("  verify", func() error {
			s, err := db.Snapshot(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }()
			_, _, err = verify(ctx, s)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// costs measures the time that steps take.
type costs struct {
	out io.Writer
	// used is the processor time of the last step. unit is that of the batch computation, with
	// which later steps are compared; 0: not known yet.
	used, unit time.Duration
}

// measured runs a step and prints its cost.
func (c *costs) measured(what string, fn func() error) error {
	start, before := time.Now(), processorTime()
	if err := fn(); err != nil {
		return err
	}
	c.used = processorTime() - before
	line := fmt.Sprintf("%-40s %8.2f s %8.2f s CPU", what, time.Since(start).Seconds(),
		c.used.Seconds())
	if c.unit > 0 {
		line += fmt.Sprintf(", %.1f times the batch's", c.used.Seconds()/c.unit.Seconds())
	}
	_, err := fmt.Fprintln(c.out, line)
	return err
}

// measure publishes an advisory on a package, and waits until nothing is left to run. The advisory
// must then reach want names.
func measure(ctx context.Context, db *percolator.DB, id, name string, want int,
	measured func(string, func() error) error) error {
	err := measured(fmt.Sprintf("%s: %d names", name, want), func() error {
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			advise(tx, id, name, "")
			return nil
		})
		return errors.Join(err, db.WaitIdle(ctx))
	})
	if err != nil {
		return err
	}
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	p, err := affects.Progress(ctx, s, id)
	if err == nil && p.Size != want {
		err = fmt.Errorf("%s reaches %d names, the batch %d: %w", name, p.Size, want, errDiffers)
	}
	return err
}

// examples returns packages that few, some, many and most depend on: well-known ones, and one
// each that 400 to 500 and 13,000 to 17,000 names depend on.
func (b *batch) examples() []string {
	var found []string
	for _, name := range []string{"libzip4", "libssl3", "libc6"} {
		if len(b.dependents[name]) > 0 {
			found = append(found, name)
		}
	}
	for _, between := range [][2]int{{400, 500}, {13_000, 17_000}} {
		for _, name := range slices.Sorted(maps.Keys(b.dependents)) {
			if !strings.HasPrefix(name, "lib") {
				continue
			}
			if reached := len(b.reach(name)); reached >= between[0] && reached <= between[1] {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// processorTime returns the processor time used by this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
