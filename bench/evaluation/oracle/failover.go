package oracle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
)

const pauseTable = "kill -9 of the process that grants timestamps, 3 processes"

// failOvers measures the longest wait for a timestamp while the process that grants them is killed.
func (s *stage) failOvers(ctx context.Context) error {
	rounds := s.r.Rounds
	if s.r.Smoke {
		rounds = 1
	}
	if err := s.replicated(ctx); err != nil {
		return err
	}
	for range rounds {
		longest, err := s.failOver(ctx)
		if err != nil {
			return err
		}
		s.r.Value(pauseTable, "8 callers", "ms longest wait", longest.Seconds()*1000)
	}
	return nil
}

// replicated waits until the meta tablet survives the loss of a process.
func (s *stage) replicated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := s.c.Dial(ctx)
	if err != nil {
		return err
	}
	return errors.Join(cluster.Replicated(ctx, db, 1), db.Close())
}

// failOver kills the process under the load of several callers, and starts it again afterwards. A timestamp
// must be above all that were received before its call, across the change of the process, too.
func (s *stage) failOver(ctx context.Context) (longest time.Duration, err error) {
	const clients, before, after = 8, 500 * time.Millisecond, 3 * time.Second
	of, end, err := s.connect(ctx, clients)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	leader, err := s.leader(ctx)
	if err != nil {
		return 0, err
	}
	var seen atomic.Uint64 // the highest timestamp received by any caller
	waits := make([]time.Duration, clients)
	over := time.Now().Add(before + after)
	g, loaded := errgroup.WithContext(ctx)
	for i, next := range of {
		g.Go(func() error {
			for time.Now().Before(over) {
				floor, called := seen.Load(), time.Now()
				ts, err := next.one(loaded)
				if err != nil {
					return err
				}
				waits[i] = max(waits[i], time.Since(called))
				if err := raise(&seen, floor, ts); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		select {
		case <-loaded.Done():
			return nil
		case <-time.After(before):
			return leader.Kill()
		}
	})
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for _, w := range waits {
		longest = max(longest, w)
	}
	if err := leader.Start(); err != nil {
		return 0, err
	}
	return longest, s.c.Started(ctx)
}

// raise raises seen to the timestamp. It fails if the timestamp is not above the floor.
func raise(seen *atomic.Uint64, floor uint64, ts mvcc.Timestamp) error {
	if uint64(ts) <= floor {
		return errOrder
	}
	for {
		old := seen.Load()
		if old >= uint64(ts) || seen.CompareAndSwap(old, uint64(ts)) {
			return nil
		}
	}
}

var errOrder = errors.New("a timestamp is not above one that was received before its request")
