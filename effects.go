package percolator

import (
	"cmp"
	"context"
	"slices"

	"github.com/percolator-go/percolator/internal/txn"
)

// Unfinished is the former name of ObserverPending.
//
// Deprecated: use ObserverPending.
type Unfinished = ObserverPending

// WaitFor waits until all effects of the commit at ts are committed and readable: the runs of
// observers that it triggered, the runs that those triggered, and so on. ts must be the
// timestamp of a commit that has returned. The effects of all commits that returned before it
// are complete too. Unrelated load does not delay WaitFor.
//
// WaitFor does not wait for parked notifications, nor for those of observers that are paused,
// retired, or registered by no running process. It returns their numbers in Parked and Held, by
// observer, including those that earlier commits left. If it returns none, the effects are
// complete.
//
// A transaction that an observer begins itself (DBFrom) counts as part of the run if it uses
// the run's context and ends before the function returns. A timer of Tx.NotifyAfter counts
// only once it is due.
//
// A weak observer may run twice at the same time for one notification. WaitFor waits for the
// first of the two to commit; the second may commit the same writes again after WaitFor has
// returned.
//
// WaitFor polls the tablets until ctx ends, and then returns ctx's error. It returns
// ErrInvalid if ts is 0 or in the future, or if a node runs a release without WaitFor; the
// text then says what to do. It may miss effects of commits from before the cluster was
// finalized at such a release (docs/operating/running.md).
func (db *DB) WaitFor(ctx context.Context, ts Timestamp) ([]ObserverPending, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	held, err := db.c.WaitFor(ctx, txn.Timestamp(ts))
	if err != nil {
		return nil, err
	}
	var out []ObserverPending
	for name, p := range held {
		out = append(out, ObserverPending{
			Name: name, Observer: name, Parked: p.Parked, Held: p.Notifications + p.Intents,
			Notifications: p.Notifications, Intents: p.Intents, Oldest: Timestamp(p.OldestTs),
		})
	}
	slices.SortFunc(out, func(a, b ObserverPending) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Settled reports whether the snapshot contains all effects of the changes that it contains,
// as far as observers of columns of the given tables produce them: every run of such an
// observer that a commit at or below the snapshot's timestamp triggered is itself committed
// at or below that timestamp. Derived data then agree with their sources. Settled ignores
// parked notifications and those of observers that are paused, retired, or registered by no
// running process. Without tables it covers all observers. If the writes of one observer
// trigger another, name the tables of both.
//
// Settled returns false if such a run was in progress at the timestamp, and also if that can
// no longer be determined: a tablet has changed its leader since, or more than 64 runs for changes
// in one tablet have ended since. Call it soon after opening the snapshot, and open another
// snapshot if it returns false. To read the effects of a particular commit, call DB.WaitFor and
// then open a snapshot.
//
// It returns ErrNoTable, ErrClosed, and the errors of DB.WaitFor.
func (s *Snapshot) Settled(ctx context.Context, tables ...string) (bool, error) {
	return s.s.Settled(ctx, tables...)
}
