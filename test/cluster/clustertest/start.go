// Package clustertest starts clusters of processes for tests.
package clustertest

import (
	"context"
	"testing"

	percolator "github.com/percolator-go/percolator"
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

// Replicated calls cluster.Replicated, and fails the test if ctx ends first.
func Replicated(ctx context.Context, tb testing.TB, db *percolator.DB, tablets int) {
	tb.Helper()
	if err := cluster.Replicated(ctx, db, tablets); err != nil {
		tb.Fatal(err)
	}
}
