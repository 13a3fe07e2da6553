package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/worker"
)

// TestRefusalPausesOtherWorkers: an outside service refuses one of two workers. Neither begins a
// run during the wait, once the other has been told.
func TestRefusalPausesOtherWorkers(t *testing.T) {
	n := openNode(t, nil)
	const wait, told = 3 * time.Second, time.Second
	var refused atomic.Pointer[time.Time]
	var mu sync.Mutex
	var began []time.Time
	register := func(r *percolator.Registry) {
		r.Strong("count", input, func(_ context.Context, tx *percolator.Tx, n percolator.Notification) error {
			now := time.Now()
			if refused.CompareAndSwap(nil, &now) {
				return percolator.RetryAfter(errors.New("busy"), wait)
			}
			mu.Lock()
			began = append(began, now)
			mu.Unlock()
			tx.Set(n.Row, count, []byte("+"))
			return nil
		})
	}
	run(t, n.Addr(), register, worker.Config{})
	run(t, n.Addr(), register, worker.Config{})
	write(t, n.DB(), 1)
	eventually(t, "a worker is refused", func() bool { return refused.Load() != nil })
	select { // the node has told the other worker
	case <-time.After(told):
	case <-t.Context().Done():
	}
	write(t, n.DB(), 30)
	eventually(t, "all rows are counted", func() bool { return counts(t, n.DB())["+"] == 30 })
	mu.Lock()
	defer mu.Unlock()
	for _, at := range began {
		if after := at.Sub(*refused.Load()); after > told && after < wait {
			t.Errorf("a run began %v after the refusal for %v", after, wait)
		}
	}
}

// TestRetireReachesWorkers: an observer that only a worker runs is retired; it leaves no notification, and runs no more.
func TestRetireReachesWorkers(t *testing.T) {
	n := openNode(t, nil)
	var runs atomic.Int64
	run(t, n.Addr(), counting(1, func(percolator.Notification) { runs.Add(1) }), worker.Config{})
	write(t, n.DB(), 10)
	eventually(t, "the observer runs", func() bool { return counts(t, n.DB())["+"] == 10 })
	if _, err := n.DB().Admin().RetireObserver(within(t, time.Minute), "count"); err != nil {
		t.Fatal(err)
	}
	before := runs.Load()
	write(t, n.DB(), 10)
	eventually(t, "the observer is gone", func() bool {
		all, err := handle.Client(n.DB()).Transport().Observers(within(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(all, func(o *pb.ObserverState) bool { return o.GetNotifications() > 0 || !o.GetInfo().GetRetired() })
	})
	if got := runs.Load(); got != before {
		t.Errorf("%d runs of a retired observer", got-before)
	}
}

// TestWhyAsksWorkers: the last run of a row is that of the worker, with its reads and writes.
func TestWhyAsksWorkers(t *testing.T) {
	n := openNode(t, nil)
	run(t, n.Addr(), counting(1, nil), worker.Config{})
	write(t, n.DB(), 1)
	var last *pb.ObserverRun
	eventually(t, "a run is remembered", func() bool {
		answer, err := handle.Client(n.DB()).Admin().ObserverRun(within(t, time.Minute),
			&pb.ObserverRunRequest{Name: "count", Row: []byte("row/00000")})
		if err != nil {
			t.Fatal(err)
		}
		last = answer.GetRun()
		return last != nil
	})
	is := func(c *pb.TableColumn) bool {
		return string(c.GetColumn()) == count.Name && c.GetTable() == count.Table
	}
	if !slices.ContainsFunc(last.GetRead(), is) || !slices.ContainsFunc(last.GetWrote(), is) || last.GetStartTs() == 0 {
		t.Errorf("the last run is %v", last)
	}
}
