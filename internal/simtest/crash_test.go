package simtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// TestCrashWhileStopping kills a node that is draining: the crash must end the drain and not be
// reported as a failed drain. Once the drain continued without a network, and the simulation reported
// that the node's observers were still running.
func TestCrashWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		col := percolator.Column{Table: "t", Name: "c"}
		running := make(chan struct{}, 1)
		c, err := New(Config{Seed: 1, Nodes: 1, Observers: func(r *percolator.Registry) {
			r.Strong("endless", col, func(ctx context.Context, _ *percolator.Tx,
				_ percolator.Notification) error {
				running <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}, percolator.Deadline(5*time.Minute))
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, db := c.Client(0)
		if err := db.CreateTable(t.Context(), percolator.TableSpec{Name: col.Table}); err != nil {
			t.Fatal(err)
		}
		if err := db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			tx.Set("row", col, []byte("x"))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		<-running
		m, stopped := c.list()[0], make(chan error, 1)
		go func() { stopped <- m.stop() }()
		synctest.Wait() // until it drains
		if err := m.crash(true); err != nil {
			t.Error(err)
		}
		if err := <-stopped; err != nil {
			t.Errorf("stop of a node that crashed during it: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
