package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// scans are statistics of scanners.
type scans struct{ Turns, Requests, Clean, Errors uint64 }

// scans sums the statistics of all nodes' scanners.
func (r *rig) scans() (sum scans) {
	for _, n := range r.nodes {
		s := n.Scans()
		sum.Turns += s.Turns.Load()
		sum.Requests += s.Requests.Load()
		sum.Clean += s.Clean.Load()
		sum.Errors += s.Errors.Load()
	}
	return sum
}

// TestIdleTabletsAreNotWalked: once each of many observed tablets has been walked, the nodes'
// scanners and sweepers send requests to hardly any of them. Later writes are found without hints,
// in any tablet, also by a node that leads none of them; afterwards the scanners are idle again.
func TestIdleTabletsAreNotWalked(t *testing.T) {
	t.Parallel()
	const tablets = 48
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o := watch()
	r := newRig(t, 3, func(i int, c *node.Config) {
		c.Observers = o.register
		c.Notifications.NoHints = true
	})
	spec := percolator.TableSpec{Name: o.column.Table}
	for i := 1; i < tablets; i++ {
		spec.SplitKeys = append(spec.SplitKeys, fmt.Sprintf("%02d", i))
	}
	if err := r.nodes[0].DB().CreateTable(ctx, spec); err != nil {
		t.Fatal(err)
	}
	r.spread(ctx, 3)
	silence := func(when string) {
		t.Helper()
		awaitTrue(ctx, t, when, func() bool {
			// Until all scanners have taken some turns: walking everything would be 32 requests in
			// each turn.
			const turns = 60
			before := r.scans()
			awaitTrue(ctx, t, "scanners turn", func() bool {
				return r.scans().Turns >= before.Turns+turns
			})
			now := r.scans()
			asked, left := now.Requests-before.Requests, now.Clean-before.Clean
			t.Logf("%s: %d requests in %d turns, %d tablets left out, %d errors", when, asked,
				now.Turns-before.Turns, left, now.Errors-before.Errors)
			return asked <= turns/2 && left >= (turns-12)*(tablets-2)
		})
	}
	silence("after the start")
	for i, row := range []string{"00x", "20x", "47x"} {
		began := time.Now()
		if err := set(ctx, r.nodes[i].DB(), row, o.column, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got := o.await(t); got != row {
			t.Errorf("the observer ran for %q, not %q", got, row)
		}
		t.Logf("found after %v", time.Since(began).Round(time.Millisecond))
	}
	silence("after some work")
}
