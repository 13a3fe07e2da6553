package percolator

import (
	"cmp"
	"context"
	"slices"

	"github.com/percolator-go/percolator/internal/txn"
)

// Unfinished is what waits for an observer that does not run it: an operator has to act.
type Unfinished struct {
	Observer string
	// Parked is how many notifications were given up after too many failures. They wait for
	// a replay, or for a newer change of their cells.
	Parked uint64
	// Held is how many wait because the observer is paused or retired, or because no
	// process that runs has registered it.
	Held uint64
}

// WaitFor returns when all that the commit at ts has set off is done: the runs of observers
// for what it changed or notified, those for what these runs wrote, and so on. The commit must
// have returned ts; what earlier commits that had returned have set off is done too. Whoever
// reads now can read all that was written. The load of others does not hold it up.
//
// Notifications that are parked, and those of observers that are paused, retired or run by no
// process, are not waited for: they are returned, by observer, and so is what earlier commits
// have left of that kind. If there are none, nothing of the effects is missing.
//
// Transactions that an observer makes by itself belong to its run if they begin with the run's
// context and have ended when its function returns. A timer of Tx.NotifyAfter is not waited
// for before it is due.
//
// A weak observer may run twice at once for one notification. What the first of the two runs
// has committed is waited for; the second may still commit after WaitFor has returned, and
// write what the first has written once more.
//
// WaitFor asks the tablets again and again until ctx ends, whose error it returns then. Other
// errors: ErrInvalid if ts is 0 or in the future, or if some nodes are of a release that does
// not know it, for which the text says what to do. Of commits from before the cluster was
// finalized at a release that does (docs/operating/running.md), effects may be missed.
func (db *DB) WaitFor(ctx context.Context, ts Timestamp) ([]Unfinished, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	held, err := db.c.WaitFor(ctx, txn.Timestamp(ts))
	if err != nil {
		return nil, err
	}
	var out []Unfinished
	for name, p := range held {
		out = append(out, Unfinished{
			Observer: name, Parked: p.Parked, Held: p.Notifications + p.Intents,
		})
	}
	slices.SortFunc(out, func(a, b Unfinished) int { return cmp.Compare(a.Observer, b.Observer) })
	return out, nil
}

// Settled reports whether the snapshot shows, of the given tables, everything that observers
// make of what it shows. True means: every run of an observer of a column of these tables that
// goes back to a commit at or before the snapshot's timestamp has committed at or before it
// too. So derived data agree with what they were derived from, as far as runs of these
// observers make them; parked notifications, and those of observers that are paused, retired
// or run by no process, are left out. Without tables all observers count; where one observer's
// writes set off another's run, name the tables of both.
//
// False means that something was under way at that moment, or that nobody knows any more: the
// snapshot is older than the last change of a tablet's leader, or dozens of runs have ended
// since. Ask soon after the snapshot was opened, and if it is not settled open another. To read
// a certain commit's effects, use DB.WaitFor and open a snapshot then.
//
// Errors: ErrNoTable, ErrClosed, and those of DB.WaitFor.
func (s *Snapshot) Settled(ctx context.Context, tables ...string) (bool, error) {
	return s.s.Settled(ctx, tables...)
}
