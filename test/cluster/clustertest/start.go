// Package clustertest starts clusters of processes for tests.
package clustertest

import (
	"context"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/test/cluster"
)

// Start starts the nodes in a temporary directory and waits until they serve. They are
// ended with the test, which fails if they can't be.
func Start(ctx context.Context, tb testing.TB, cfg cluster.Config) *cluster.Cluster {
	tb.Helper()
	cfg.Dir = tb.TempDir()
	c, err := cluster.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	if err := c.Start(ctx); err != nil {
		tb.Fatal(err)
	}
	return c
}

// Replicated waits until there are at least that many tablets, and every one has three replicas
// that vote: before, a cluster that has just begun may not survive the loss of a node.
func Replicated(ctx context.Context, tb testing.TB, db *percolator.DB, tablets int) {
	tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !replicated(ctx, db, tablets) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatal("the tablets do not have their replicas in time")
		}
	}
}

func replicated(ctx context.Context, db *percolator.DB, tablets int) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	const most = 1000
	found, err := handle.Client(db).Transport().Locate(ctx, 0, "", most)
	if err != nil || len(found) < tablets || len(found) == most {
		return false
	}
	for _, d := range found {
		n := 0
		for _, r := range d.Replicas {
			if !r.Learner && !r.Incoming && !r.Outgoing {
				n++
			}
		}
		if n != 3 {
			return false
		}
	}
	return true
}
