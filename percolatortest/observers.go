package percolatortest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// RunUntilIdle runs the observers until no notification is left to run. Parked ones do not count.
func (n *Node) RunUntilIdle(t testing.TB) {
	t.Helper()
	ctx, cancel := n.bounded()
	defer cancel()
	if err := n.DB().WaitIdle(ctx); err != nil {
		t.Fatalf("percolatortest: not idle within %v: %v%s", n.timeout, err, n.waiting())
	}
}

// waiting says what is left to run, for a message.
func (n *Node) waiting() string {
	ctx, cancel := n.bounded()
	defer cancel()
	var text strings.Builder
	for _, s := range n.current().Status().Observers {
		left, err := n.notifications(ctx, s.Name)
		if err != nil {
			return err.Error()
		}
		for _, m := range left {
			if !m.Parked {
				fmt.Fprintf(&text, "\n  %s waits for row %q: %d failed runs, the last: %s", s.Name,
					m.Row, m.Attempts, m.Error)
			}
		}
		text.WriteString(n.locked(ctx, s.Name))
	}
	return text.String()
}

// locked says which transactions are in the way of an observer.
func (n *Node) locked(ctx context.Context, observer string) string {
	o, err := n.observer(ctx, observer)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, group := range []mvcc.Group{mvcc.GroupLock, mvcc.GroupIntent} {
		for e, err := range handle.Client(n.DB()).WalkColumn(ctx, group, mvcc.TableID(o.Table),
			wire.String(o.Column)) {
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&text, "\n  %s waits for a transaction: row %q column %q %v%v", observer,
				e.Cell.Row, e.Cell.Column, e.Lock, e.Intent)
		}
	}
	return text.String()
}

// Stats count what has become of an observer's runs since the node was started, or started
// again. A run for n changes, of an observer that takes batches, counts as n.
type Stats struct {
	Runs        uint64 // calls of the function
	Commits     uint64 // runs whose transaction committed
	Conflicts   uint64 // run again because another transaction was faster
	Unavailable uint64 // run again because a tablet did not answer, or the outcome was unknown
	Failures    uint64 // runs that failed, panicked or passed the deadline
	Parked      uint64 // notifications given up after too many failures
	Skipped     uint64 // found clean: the function was not called
}

// Stats reads the counters of one observer.
func (n *Node) Stats(t testing.TB, observer string) Stats {
	t.Helper()
	for _, s := range n.current().Status().Observers {
		if s.Name == observer {
			return Stats{
				Runs: s.Runs, Commits: s.Commits, Conflicts: s.Conflicts,
				Unavailable: s.Unavailable, Failures: s.Failures,
				Parked: s.Parked, Skipped: s.Skipped,
			}
		}
	}
	t.Fatalf("percolatortest: no observer %q", observer)
	return Stats{}
}

// Notification is one that waits, or that was given up.
type Notification struct {
	Row      string
	TS       percolator.Timestamp // of the change
	Attempts int                  // failed runs; conflicts do not count
	Parked   bool                 // given up: it waits for a newer write or Replay
	Error    string               // of the last failed run, cut to 1 KiB
}

// Notifications lists an observer's notifications in row order.
func (n *Node) Notifications(t testing.TB, observer string) []Notification {
	t.Helper()
	ctx, cancel := n.bounded()
	defer cancel()
	out, err := n.notifications(ctx, observer)
	if err != nil {
		t.Fatalf("percolatortest: %v", err)
	}
	return out
}

// Parked lists those of an observer's notifications that were given up.
func (n *Node) Parked(t testing.TB, observer string) []Notification {
	t.Helper()
	var out []Notification
	for _, m := range n.Notifications(t, observer) {
		if m.Parked {
			out = append(out, m)
		}
	}
	return out
}

// Replay lets an observer's parked notifications run again, and returns how many.
func (n *Node) Replay(t testing.TB, observer string) int {
	t.Helper()
	ctx, cancel := n.bounded()
	defer cancel()
	replayed, err := handle.Client(n.DB()).ReplayParked(ctx, observer, func(uint64) {})
	if err != nil {
		t.Fatalf("percolatortest: replay what %q gave up: %v", observer, err)
	}
	return int(replayed)
}

func (n *Node) observer(ctx context.Context, name string) (*pb.ObserverInfo, error) {
	catalogue, err := handle.Client(n.DB()).Transport().Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range catalogue.GetObservers() {
		if o.Name == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("percolatortest: no observer %q", name)
}

// notifications lists the notify group of an observed column.
func (n *Node) notifications(ctx context.Context, observer string) ([]Notification, error) {
	o, err := n.observer(ctx, observer)
	if err != nil {
		return nil, err
	}
	var out []Notification
	for e, err := range handle.Client(n.DB()).WalkColumn(ctx, mvcc.GroupNotify, mvcc.TableID(o.Table),
		wire.String(o.Column)) {
		if err != nil {
			return nil, err
		}
		out = append(out, Notification{
			Row: wire.String(e.Cell.Row), TS: percolator.Timestamp(e.GetNotify().GetTs()),
			Attempts: int(e.GetNotify().GetAttempts()),
			Parked:   e.GetNotify().GetParkedTs() != 0, Error: e.GetNotify().GetError(),
		})
	}
	return out, nil
}
