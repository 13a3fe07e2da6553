package percolator

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Pending is what waits for observers.
type Pending struct {
	Runnable uint64 // notifications that some process may run, or runs
	// those of observers that are paused, retired or linked by no process: WaitIdle does
	// not wait for them
	Held   uint64
	Parked uint64 // given up after too many failures: they wait for a replay or a newer change
	// Observers are the catalogue's, with what waits for each.
	Observers []ObserverPending
}

// ObserverPending is what waits for one observer.
type ObserverPending struct {
	Name          string
	Linked        bool // by a process that the answering node knows of
	Paused        bool
	Retired       bool   // it is being removed
	Notifications uint64 // not parked
	Parked        uint64 // given up
	Intents       uint64 // weak notifications of transactions that are not decided yet
	// when the oldest one that is not parked changed, to the second at worst; 0: there is none
	Oldest Timestamp
}

// Pending counts what waits for observers, including what WaitIdle does not wait for.
// Tablets answer one by one, so the figures are of no one moment.
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
