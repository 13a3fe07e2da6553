package percolatortest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// RunUntilIdle waits until no notification is left to run, as percolator.DB's WaitIdle does. Parked
// ones do not count, nor those of observers that are paused, retired or not registered. Stats then
// includes all runs that have ended.
func (n *Node) RunUntilIdle(t testing.TB) {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	if err := n.DB().WaitIdle(ctx); err != nil {
		t.Fatalf("percolatortest: not idle within %v: %v%s", n.timeout, err, n.waiting())
	}
	// A commit is visible before its run has ended and been counted.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n.runs() && ctx.Err() == nil {
		<-tick.C
	}
}

// runs reports whether an observer that is not paused has a run that is not stuck.
func (n *Node) runs() bool {
	return slices.ContainsFunc(n.current().Status().Observers, func(s *pb.ObserverStatus) bool {
		return !s.Paused && s.Running > s.Stuck
	})
}

// waiting describes the notifications that are left, for a failure message.
func (n *Node) waiting() string {
	ctx, cancel := n.callContext()
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

// locked describes the locks and intents that block an observer.
func (n *Node) locked(ctx context.Context, observer string) string {
	o, err := n.observer(ctx, observer)
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, group := range []mvcc.Group{mvcc.GroupLock, mvcc.GroupIntent} {
		for e, err := range handle.Client(n.DB()).WalkColumn(ctx, group, wire.ColumnOf(o)) {
			if err != nil {
				return err.Error()
			}
			fmt.Fprintf(&text, "\n  %s waits for a transaction: row %q column %q %v%v", observer,
				e.Cell.Row, e.Cell.Column, e.Lock, e.Intent)
		}
	}
	return text.String()
}

// Stats are the counters of an observer since the last start of the node. A run for n changes
// of a batch counts as n.
type Stats struct {
	Runs        uint64 // calls of the function
	Commits     uint64 // runs whose transaction committed
	Conflicts   uint64 // runs that conflicted
	Unavailable uint64 // runs that met an unavailable tablet or an unknown outcome
	Failures    uint64 // runs that failed, panicked or exceeded the deadline
	Parked      uint64 // notifications parked after too many failures
	Skipped     uint64 // notifications already processed, without a call of the function
}

// Stats returns the counters of one observer.
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

// Notification is a notification that is waiting or parked.
type Notification struct {
	Row      string
	CommitTS percolator.Timestamp // commit timestamp of the change
	Attempts int                  // failed runs; MaxConflicts consecutive conflicts count as one
	Parked   bool                 // failed too often: runs again after a newer write or Replay
	Error    string               // error of the last failed run, truncated to 1 KiB

	// TS is CommitTS.
	//
	// Deprecated: use CommitTS.
	TS percolator.Timestamp
}

// Notifications returns the notifications of an observer, ordered by row.
func (n *Node) Notifications(t testing.TB, observer string) []Notification {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	out, err := n.notifications(ctx, observer)
	if err != nil {
		t.Fatalf("percolatortest: read notifications of %q: %v", observer, err)
	}
	return out
}

// Parked returns the parked notifications of an observer, ordered by row.
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

// Replay makes the parked notifications of an observer run again, and returns their number.
func (n *Node) Replay(t testing.TB, observer string) int {
	t.Helper()
	ctx, cancel := n.callContext()
	defer cancel()
	replayed, err := handle.Client(n.DB()).ReplayParked(ctx, observer, func(uint64) {})
	if err != nil {
		t.Fatalf("percolatortest: replay parked notifications of %q: %v", observer, err)
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

// notifications reads the observer's notify entries.
func (n *Node) notifications(ctx context.Context, observer string) ([]Notification, error) {
	o, err := n.observer(ctx, observer)
	if err != nil {
		return nil, err
	}
	var out []Notification
	for e, err := range handle.Client(n.DB()).WalkColumn(ctx, mvcc.GroupNotify,
		wire.NotifyColumn(o)) {
		if err != nil {
			return nil, err
		}
		ts := percolator.Timestamp(e.GetNotify().GetTs())
		out = append(out, Notification{
			Row: wire.String(e.Cell.Row), CommitTS: ts, TS: ts,
			Attempts: int(e.GetNotify().GetAttempts()),
			Parked:   e.GetNotify().GetParkedTs() != 0, Error: e.GetNotify().GetError(),
		})
	}
	return out, nil
}
