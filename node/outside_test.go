package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// TestOutsideServiceHoldsUpAllNodes: when an external service refuses one node's run, the other
// nodes, which have made no call, make none until the wait ends, and their status says why.
func TestOutsideServiceHoldsUpAllNodes(t *testing.T) {
	t.Parallel()
	const wait = 5 * time.Second
	var (
		mu      sync.Mutex
		calls   []time.Time
		refused atomic.Int64 // Unix nanoseconds of the first refusal
	)
	r := newRig(t, 3, func(i int, c *node.Config) {
		quick(c)
		c.Observers = func(reg *percolator.Registry) {
			reg.Strong("embed", input, func(context.Context, *percolator.Tx, percolator.Notification) error {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				first := refused.CompareAndSwap(0, now.UnixNano())
				if calls = append(calls, now); !first && now.Sub(time.Unix(0, refused.Load())) >= wait {
					return nil
				}
				return percolator.RetryAfter(errors.New("429 slow down"), wait)
			})
		}
	})
	n := r.nodes[0]
	write(t, n.DB(), 0, 1)
	eventually(t, "a run is refused", func() bool { return refused.Load() != 0 })
	waiting := 0
	for tick := time.Tick(10 * time.Millisecond); waiting < 3 && time.Since(time.Unix(0, refused.Load())) < wait-time.Second; <-tick {
		waiting = 0
		for _, n := range r.nodes {
			if s := n.Status().Observers; len(s) == 1 && s[0].Outside.GetNextMs() > 0 {
				waiting++
			}
		}
	}
	if waiting != 3 {
		t.Errorf("UNTOLD: %d of 3 nodes wait", waiting)
	}
	write(t, n.DB(), 1, 300)
	told := time.Since(time.Unix(0, refused.Load()))
	if s := stateOf(t, n, "embed"); told < wait &&
		(s.Status.Outside.GetError() == "" || s.Status.Outside.GetNextMs() > uint64(wait.Milliseconds())) {
		t.Errorf("the cluster reports %v", s.Status.Outside)
	}
	if err := n.DB().WaitIdle(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no node waits", func() bool {
		for _, n := range r.nodes {
			if s := n.Status().Observers[0]; s.Outside != nil || s.Queued+s.Running > 0 {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	early, first := 0, time.Unix(0, refused.Load())
	for _, at := range calls {
		if at.Sub(first) < wait {
			early++
		}
	}
	if early != 1 || len(calls) < 301 { // two nodes may run for the same row; one of them commits
		t.Errorf("%d of %d calls were made during the wait, want the first one of at least 301", early, len(calls))
	}
	if s := stateOf(t, n, "embed").Status; s.Refused != 1 || s.Failures+s.Parked != 0 {
		t.Error(fmt.Sprint(s))
	}
}
