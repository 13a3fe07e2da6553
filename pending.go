package percolator

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Pending counts the notifications that have not been processed.
type Pending struct {
	// Runnable is the number of notifications that are queued or running.
	Runnable uint64
	// Held is the number of notifications of observers that are paused, retired, or
	// registered by no running process. WaitIdle does not wait for them.
	Held uint64
	// Parked is the number of notifications that failed too often. They run again after a
	// replay or a newer change.
	Parked uint64
	// Observers has the counts of every observer of the cluster.
	Observers []ObserverPending
}

// ObserverPending counts the notifications of one observer.
type ObserverPending struct {
	Name          string
	Linked        bool // a process known to the answering node has registered it
	Paused        bool
	Retired       bool   // it is being removed
	Notifications uint64 // not parked
	Parked        uint64 // failed too often
	Intents       uint64 // weak notifications of undecided transactions
	// Oldest is the commit timestamp of the oldest change that is not parked, exact to a
	// second; 0 if there is none.
	Oldest Timestamp
}

// Pending counts the notifications of all observers, including those for which WaitIdle does
// not wait. It queries the tablets one after the other, so the counts are not of one point
// in time.
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
		if o.Linked && !o.Paused && !o.Retired {
			p.Runnable += o.Notifications
		} else {
			p.Held += o.Notifications
		}
		p.Observers = append(p.Observers, o)
	}
	return p, nil
}

func observerPending(s *pb.ObserverState) ObserverPending {
	return ObserverPending{
		Name: s.GetInfo().GetName(), Linked: s.Linked, Paused: s.GetInfo().GetPaused(),
		Retired:       s.GetInfo().GetRetired(),
		Notifications: s.Notifications, Parked: s.Parked, Intents: s.Intents,
		Oldest: Timestamp(s.OldestTs),
	}
}
