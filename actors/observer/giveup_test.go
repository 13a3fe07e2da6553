package observer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/notify"
)

// inHand returns the number of cells that the dispatcher holds and of runs that count as stuck.
func inHand(t *testing.T, d *Dispatcher) (cells, stuck int) {
	t.Helper()
	if err := d.onDispatcher(t.Context(), func(a *dispatcherActor) {
		cells, stuck = len(a.entries), a.stuck+a.order[0].stuck
	}); err != nil {
		t.Fatal(err)
	}
	return cells, stuck
}

// impatient makes the dispatcher abandon a function at once.
func impatient(c *Config) {
	c.Observers[0].Spec.Deadline, c.Grace = time.Millisecond, time.Millisecond
	c.FailureBase, c.FailureMax = time.Millisecond, time.Millisecond
}

// TestParkedWhileStuck: a row that is parked while its function has not returned does not run when
// the function returns, and its run no longer counts as stuck.
func TestParkedWhileStuck(t *testing.T) {
	gate, calls := make(chan struct{}), atomic.Int32{}
	d, client := probe(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		calls.Add(1)
		<-gate
		return nil
	}, func(c *Config) {
		impatient(c)
		c.Observers[0].Spec.MaxAttempts = 1
	})
	offer(t, d, "a", client.change(cellOf("a")), nil)
	until(t, "parked", func() bool { return d.Stats()[0].Parked == 1 })
	close(gate)
	until(t, "it is forgotten", func() bool {
		cells, _ := inHand(t, d)
		return cells == 0
	})
	if _, stuck := inHand(t, d); calls.Load() != 1 || stuck != 0 {
		t.Errorf("it ran %d times, %d runs are stuck", calls.Load(), stuck)
	}
}

// TestStaleOffers: a change that was parked after a scan had read it, or whose hint arrives late, does
// not run again, alone or in a batch. A newer change does.
func TestStaleOffers(t *testing.T) {
	var ran []string // one run at a time
	d, client := probe(t, nil, func(c *Config) {
		spec := &c.Observers[0].Spec
		spec.Batch, spec.MaxAttempts = 9, 2
		spec.BatchFunc = func(_ context.Context, _ *percolator.Tx, changes []percolator.Notification) error {
			failed := map[string]error{}
			for _, n := range changes {
				if ran = append(ran, n.Row); n.Row == "ax" {
					failed[n.Row] = errors.New("poison")
				}
			}
			return &percolator.PartialError{Failed: failed}
		}
		c.FailureBase, c.FailureMax = time.Millisecond, time.Millisecond
	})
	stale := client.change(cellOf("ax"))
	offer(t, d, "ax", stale, nil)
	until(t, "parked", func() bool { return d.Stats()[0].Parked == 1 })
	ended := func(n uint64) func() bool {
		return func() bool { s := d.Stats()[0]; return s.Skipped+s.Failures >= 2+n }
	}
	offer(t, d, "ax", stale, nil)
	until(t, "a stale scan has ended", ended(1))
	offer(t, d, "ax", nil, nil)
	until(t, "a late hint has ended", ended(2))
	batch := []notify.Dirty{{Cell: cellOf("ax"), Notify: stale, Held: true}}
	for _, row := range []string{"ay", "az"} {
		batch = append(batch, notify.Dirty{Cell: cellOf(row), Notify: client.change(cellOf(row)), Held: true})
	}
	if _, err := d.Submit(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	until(t, "the batch has ended", ended(3))
	until(t, "the others commit", func() bool { return d.Stats()[0].Commits == 2 })
	if want := []string{"ax", "ax", "ay", "az"}; !slices.Equal(ran, want) {
		t.Errorf("PARKED-RAN: the runs were of %q, want %q", ran, want)
	}
	offer(t, d, "ax", client.change(cellOf("ax")), nil)
	until(t, "a newer change runs", func() bool { return d.Stats()[0].Parked >= 2 })
}

// TestStuckBatch: while the function of a batch does not return, the batch's cells run one by one.
func TestStuckBatch(t *testing.T) {
	began, gate, stuck := make(chan struct{}), make(chan struct{}), make(chan struct{})
	alone := make(chan string, 9)
	d, client := probe(t, nil, func(c *Config) {
		impatient(c)
		s := &c.Observers[0].Spec
		s.Func, s.Batch, s.Deadline = nil, 10, 200*time.Millisecond
		s.BatchFunc = func(_ context.Context, _ *percolator.Tx,
			changes []percolator.Notification) error {
			switch {
			case changes[0].Row == "agate":
				close(began)
				<-gate
			case len(changes) > 1:
				<-stuck
			default:
				alone <- changes[0].Row
			}
			return nil
		}
	})
	defer close(stuck)
	for _, row := range []string{"agate", "a1", "a2"} {
		offer(t, d, row, client.change(cellOf(row)), nil)
		if row == "agate" {
			<-began
		}
	}
	close(gate)
	until(t, "both run alone", func() bool { return len(alone) == 2 })
	if one, other := <-alone, <-alone; one == other {
		t.Errorf("%s ran twice", one)
	}
	if s := d.Stats()[0]; s.Divided != 1 {
		t.Errorf("%d batches were split, want 1", s.Divided)
	}
}

// TestPausedWhileRunning: a cell that runs while its observer is paused and resumed does not run
// twice concurrently. Catches BROKEN=running_forgotten.
func TestPausedWhileRunning(t *testing.T) {
	gate, at := make(chan struct{}), atomic.Int32{}
	d, client := probe(t, func(context.Context, *percolator.Tx, percolator.Notification) error {
		if at.Add(1) > 1 {
			t.Error("TWICE-AT-ONCE: two runs of one cell")
		}
		<-gate
		at.Add(-1)
		return nil
	}, func(c *Config) { c.Observers[0].Spec.Concurrency = 4 })
	offer(t, d, "a", client.change(cellOf("a")), nil)
	until(t, "it runs", func() bool { return at.Load() == 1 })
	pause(t, d, true)
	pause(t, d, false)
	if got := offer(t, d, "a", client.change(cellOf("a")), nil); got != notify.Collapsed {
		t.Errorf("TWICE-AT-ONCE: a cell that runs is offered: %v", got)
	}
	close(gate)
	until(t, "both changes have run", func() bool { return d.Stats()[0].Commits == 2 })
}

// TestAttemptsEndWithSuccess: a change that arrives during the successful run of an earlier one
// does not inherit its attempts.
func TestAttemptsEndWithSuccess(t *testing.T) {
	attempts := make(chan int, 9)
	var client *fakeClient
	var d *Dispatcher
	d, client = probe(t, func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
		attempts <- n.Attempt
		switch n.Attempt {
		case 0:
			if len(attempts) == 1 {
				return errors.New("bad")
			}
		case 1:
			offer(t, d, "a", client.change(cellOf("a")), nil)
		}
		return nil
	}, func(c *Config) { c.FailureBase, c.FailureMax = time.Millisecond, time.Millisecond })
	offer(t, d, "a", client.change(cellOf("a")), nil)
	until(t, "three runs", func() bool { return len(attempts) == 3 })
	for i, want := range []int{0, 1, 0} {
		if got := <-attempts; got != want {
			t.Errorf("ATTEMPTS-KEPT: run %d has attempt %d, want %d", i, got, want)
		}
	}
}
