package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/workload"
)

// feed checks the feed of changes (docs/adr/0072) of the workloads' table: applied to an empty map,
// it equals a snapshot at each resolved timestamp. About once a second its subscriber stores the
// map, and then the position of a subscription. It crashes again and again, also between the two;
// the next process continues from the position with the map stored for it.
type feed struct {
	c       *Cluster
	figures FeedFigures

	// saved contains the subscriber's maps by position. The cluster may have stored any of them: the
	// outcome of an Advance may be unknown.
	saved map[percolator.Timestamp]*workload.ChangeCheck
	acked percolator.Timestamp // the greatest position known to be stored
}

// FeedFigures counts what a simulation has checked of the feed of changes.
type FeedFigures struct {
	Changes   int // applied
	Snapshots int // compared
	Resumed   int // times a subscriber continued from a stored position
}

// String implements fmt.Stringer.
func (f FeedFigures) String() string {
	return fmt.Sprintf("%d changes, %d snapshots, resumed %d times", f.Changes, f.Snapshots, f.Resumed)
}

const (
	subscription = "simtest"
	// subscribers is the number of the first subscriber's client.
	subscribers  = 200_000
	advanceEvery = time.Second
	shortestLife = 300 * time.Millisecond // of a subscriber that crashes
	longestLife  = 4 * time.Second
	longestDeath = 2 * time.Second // until the next subscriber starts
)

// Run is the workload. After its writers have ended it waits for the feed to catch up.
func (f *feed) Run(ctx context.Context, db *percolator.DB, l workload.Load) error {
	f.saved = map[percolator.Timestamp]*workload.ChangeCheck{}
	written := make(chan struct{})
	var writing error
	f.c.running.Go(func() {
		defer close(written)
		writing = workload.Churn(ctx, db, l)
	})
	err := f.follow(ctx, db, written, rand.New(rand.NewPCG(l.Seed, 6)))
	<-written
	return errors.Join(writing, err)
}

// follow runs one subscriber after the other until one has caught up.
func (f *feed) follow(ctx context.Context, db *percolator.DB, written <-chan struct{}, rng *rand.Rand) error {
	for number := subscribers; ; number++ {
		caughtUp, err := f.subscriber(ctx, db, number, written, between(rng, shortestLife, longestLife))
		switch {
		case caughtUp:
			return nil
		case !temporary(err):
			return fmt.Errorf("simtest: changes: %w", err)
		case !sleep(ctx, between(rng, 0, longestDeath)):
			return fmt.Errorf("simtest: changes: the feed has not caught up: %w", err)
		}
	}
}

// temporary reports whether faults may cause the error.
func temporary(err error) bool {
	for _, e := range []error{
		percolator.ErrUnavailable, percolator.ErrLocked, percolator.ErrOverloaded,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// subscriber is a process that continues the subscription. It crashes at the end of its life, unless
// the writers have ended. It returns true once it has compared everything that they have written.
func (f *feed) subscriber(ctx context.Context, db *percolator.DB, number int, written <-chan struct{},
	life time.Duration) (caughtUp bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	t, own := f.c.Client(number)
	var ends sync.WaitGroup
	ends.Go(func() {
		end := time.NewTimer(life)
		defer end.Stop()
		select {
		case <-end.C:
			t.Die()
			cancel()
		case <-written:
		case <-ctx.Done():
		}
	})
	defer func() {
		cancel()
		ends.Wait()
		f.c.leave(t)
	}()
	sub, err := own.Subscribe(ctx, subscription)
	if err != nil {
		return false, err
	}
	check, err := f.resume(sub.Position())
	if err != nil {
		return false, err
	}
	defer func() {
		f.figures.Changes += check.Applied
		f.figures.Snapshots += check.Compared
	}()
	return f.read(ctx, db, sub, check, written)
}

// resume returns the map stored for a position, and forgets those of lower positions.
func (f *feed) resume(at percolator.Timestamp) (*workload.ChangeCheck, error) {
	if at < f.acked {
		return nil, fmt.Errorf("the subscription is at %d, below %d, which was stored before", at, f.acked)
	}
	if at == 0 {
		return &workload.ChangeCheck{Once: true}, nil
	}
	stored := f.saved[at]
	if stored == nil {
		return nil, fmt.Errorf("the subscription is at %d, which no subscriber has stored", at)
	}
	for other := range f.saved {
		if other < at {
			delete(f.saved, other)
		}
	}
	f.acked = at
	f.figures.Resumed++
	return stored.Saved(), nil
}

// read applies the feed and compares it with snapshots, which another client reads.
func (f *feed) read(ctx context.Context, db *percolator.DB, sub *percolator.Subscription,
	check *workload.ChangeCheck, written <-chan struct{}) (caughtUp bool, err error) {
	rows := percolator.Rows(workload.Table)
	var last percolator.Timestamp // above all commits of the writers; 0: they have not ended
	var advanced time.Time
	for e, err := range sub.Changes(ctx, rows) {
		if err == nil {
			err = check.Apply(e)
		}
		if err != nil {
			return false, err
		}
		if e.Resolved == 0 {
			continue
		}
		if err := patient(ctx, func() error { return check.Compare(ctx, db, rows) }); err != nil {
			return false, err
		}
		if time.Since(advanced) >= advanceEvery {
			if err := f.advance(ctx, sub, check, e.Resolved); err != nil {
				return false, err
			}
			advanced = time.Now()
		}
		select {
		case <-written:
			if last == 0 {
				if last, err = present(ctx, db); err != nil {
					return false, err
				}
			}
			if e.Resolved >= last {
				return true, nil
			}
		default:
		}
	}
	return false, errors.New("the feed has ended without an error")
}

// advance stores the map, then the position.
func (f *feed) advance(ctx context.Context, sub *percolator.Subscription, check *workload.ChangeCheck,
	at percolator.Timestamp) error {
	f.saved[at] = check.Saved()
	if err := sub.Advance(ctx, at); err != nil {
		return err
	}
	f.acked = at
	return nil
}

// present returns a timestamp above those of all commits that have been acknowledged.
func present(ctx context.Context, db *percolator.DB) (at percolator.Timestamp, err error) {
	err = db.View(ctx, func(_ context.Context, s *percolator.Snapshot) error {
		at = s.StartTS()
		return nil
	})
	return at, err
}
