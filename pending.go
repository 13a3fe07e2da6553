package percolator

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Pending counts the notifications that have not been processed.
type Pending struct {
	// Runnable is the number of notifications that are neither held nor parked: they wait, are
	// queued or are running.
	Runnable uint64
	// Held is the number of notifications of observers that are paused, retired, or
	// registered by no running process. WaitIdle does not wait for them. Neither Held nor Runnable
	// counts the Intents of Observers.
	Held uint64
	// Parked is the number of notifications that failed too often. They run again after
	// Admin.RetryParked or a newer change of their cells.
	Parked uint64
	// Observers contains the counts of every observer of the cluster.
	Observers []ObserverPending
}

// ObserverPending counts the notifications of one observer. WaitFor does not fill in Registered,
// Paused and Retired.
type ObserverPending struct {
	Name          string
	Registered    bool // by a process known to the answering node
	Paused        bool
	Retired       bool   // the observer is being removed
	Notifications uint64 // not parked
	// Held is the sum of Notifications and Intents if the observer is paused, retired, or
	// registered by no running process; otherwise 0.
	Held uint64
	// Parked is as in Pending.
	Parked  uint64
	Intents uint64 // weak notifications of undecided transactions
	// Oldest is the commit timestamp of the oldest change that is not parked, exact to a
	// second; 0 if there is none.
	Oldest Timestamp

	// Linked is Registered.
	//
	// Deprecated: use Registered.
	Linked bool
	// Observer is Name.
	//
	// Deprecated: use Name.
	Observer string
}

// Pending counts the notifications of all observers, including those for which WaitIdle does
// not wait. It queries the tablets at different times, so the counts are not of one point in time.
func (db *DB) Pending(ctx context.Context) (Pending, error) {
	if err := db.check(); err != nil {
		return Pending{}, err
	}
	states, err := db.c.Observers(ctx)
	if err != nil {
		return Pending{}, err
	}
	var p Pending
	for _, s := range states {
		o := observerPending(s)
		p.Parked += o.Parked
		if o.runs() {
			p.Runnable += o.Notifications
		} else {
			p.Held += o.Notifications
		}
		p.Observers = append(p.Observers, o)
	}
	return p, nil
}

// runs reports whether the observer's notifications run without an operator's help.
func (o *ObserverPending) runs() bool { return o.Registered && !o.Paused && !o.Retired }

func observerPending(s *pb.ObserverState) ObserverPending {
	name := s.GetInfo().GetName()
	o := ObserverPending{
		Name: name, Observer: name, Registered: s.Linked, Linked: s.Linked,
		Paused: s.GetInfo().GetPaused(), Retired: s.GetInfo().GetRetired(),
		Notifications: s.Notifications, Parked: s.Parked, Intents: s.Intents,
		Oldest: Timestamp(s.OldestTs),
	}
	if !o.runs() {
		o.Held = o.Notifications + o.Intents
	}
	return o
}
