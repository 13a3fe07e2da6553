// Package notify measures notifications (§2.4): the time from the commit of a change to the start of its
// observer at several rates, with and without a snapshot that holds the history, the rate of observers, a
// million dirty cells, none among as many clean ones, and fairness between observers.
package notify

import (
	"context"
	"errors"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/processors"
	"github.com/percolator-go/percolator/node"
)

// Measurements returns this package's measurements.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "notify", Title: "Notifications (§2.4)", Budget: 6 * time.Minute, Run: run,
	}}
}

func run(ctx context.Context, r *harness.Run) error {
	processors.AddSpare() // as in a process that is a node
	for _, measure := range []func(context.Context, *harness.Run) error{held, many, fairness} {
		if err := measure(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// withNode calls fn with a node in this process, on a store of its own.
func withNode(ctx context.Context, r *harness.Run, observers func(*percolator.Registry),
	configure func(*node.Config), fn func(n *node.Node) error) error {
	return harness.InDir(r.Dir, func(dir string) error { return withNodeIn(ctx, dir, observers, configure, fn) })
}

// withNodeIn calls fn with a node in this process on the store in dir, which may be empty.
func withNodeIn(ctx context.Context, dir string, observers func(*percolator.Registry),
	configure func(*node.Config), fn func(n *node.Node) error) (err error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Observers = dir, "127.0.0.1:0", "", true, observers
	if configure != nil {
		configure(&cfg)
	}
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	return fn(n)
}

// pick returns the full value, or the smoke value of a smoke run.
func pick[T any](r *harness.Run, full, smoke T) T {
	if r.Smoke {
		return smoke
	}
	return full
}
