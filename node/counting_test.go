package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// TestExactCounting: with one change per row, the counter of a strong observer equals the number of
// rows, with 8 scanners, with hints off, on and duplicated, with lockd on and off (§2.4).
func TestExactCounting(t *testing.T) {
	t.Parallel()
	const rows = 600
	for _, hints := range []string{"on", "off", "twice"} {
		for _, lockd := range []bool{true, false} {
			t.Run(fmt.Sprintf("hints %s, lockd %v", hints, lockd), func(t *testing.T) {
				count := workload.Counting{Rows: rows, Shards: 4}
				if !lockd {
					count.Batch = 50
				}
				parts := nodeparts.Parts{DuplicateHints: hints == "twice"}
				n := openWith(t, "", parts, func(c *node.Config) {
					c.Observers = func(r *percolator.Registry) { count.Register(r) }
					c.Scanners = 8
					c.Notifications.NoHints = hints == "off"
					c.Notifications.NoLockd = !lockd
				})
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := count.Load(ctx, n.DB()); err != nil {
					t.Fatal(err)
				}
				if err := count.Check(ctx, n.DB()); err != nil {
					t.Error(err)
				}
				t.Logf("%v", n.Status().Observers)
			})
		}
	}
}

// TestWaitIdleWithoutTheObserver: WaitIdle does not wait for an observer that this program does not
// register; its work is done when a program that registers it starts.
func TestWaitIdleWithoutTheObserver(t *testing.T) {
	const rows = 20
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, count := t.TempDir(), workload.Counting{Rows: rows, Shards: 2}
	link := func(c *node.Config) {
		c.Observers = func(r *percolator.Registry) { count.Register(r) }
	}
	if err := open(t, dir, link).Close(ctx); err != nil {
		t.Fatal(err)
	}
	without := open(t, dir, nil)
	if err := count.Load(ctx, without.DB()); err != nil {
		t.Fatal(err)
	}
	none := count
	none.Rows = 0
	if err := none.Check(ctx, without.DB()); err != nil {
		t.Fatal(err)
	}
	if err := without.Close(ctx); err != nil {
		t.Fatal(err)
	}
	with := open(t, dir, link)
	if err := count.Check(ctx, with.DB()); err != nil {
		t.Error(err)
	}
}
