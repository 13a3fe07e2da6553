package txn_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// queues is a transport whose Observers are set by the test.
type queues struct {
	*txntest.Process
	asked  atomic.Int64
	answer func() ([]*pb.ObserverState, error)
}

func (q *queues) Observers(context.Context) ([]*pb.ObserverState, error) {
	q.asked.Add(1)
	return q.answer()
}

// waiting returns an observer with a linked process and n pending notifications.
func waiting(n int64) *pb.ObserverState {
	return &pb.ObserverState{
		Info: &pb.ObserverInfo{Name: "o"}, Linked: true, Notifications: uint64(n),
	}
}

// inBubble runs a test with a client over the queues.
func inBubble(t *testing.T, answer func() ([]*pb.ObserverState, error),
	test func(t *testing.T, c *txn.Client, q *queues)) {
	synctest.Test(t, func(t *testing.T) {
		q := &queues{Process: txntest.New().Process(1, 1), answer: answer}
		c := txn.NewClient(q, txn.Config{})
		test(t, c, q)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestBacklogBoundsTheQueue: any number of loaders faster than the observer never exceed the bound
// of pending notifications, with rare queries.
func TestBacklogBoundsTheQueue(t *testing.T) {
	const most, loads = 100, 5000
	var queue, highest atomic.Int64
	answer := func() ([]*pb.ObserverState, error) {
		return []*pb.ObserverState{waiting(queue.Load())}, nil
	}
	inBubble(t, answer, func(t *testing.T, c *txn.Client, q *queues) {
		stop, began := make(chan struct{}), time.Now()
		var observer, loaders sync.WaitGroup
		observer.Go(func() { // a thousand per second
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-tick.C:
					if queue.Load() > 0 {
						queue.Add(-1)
					}
				case <-stop:
					tick.Stop()
					return
				}
			}
		})
		for range 20 {
			loaders.Go(func() {
				for range loads / 20 {
					if err := c.AwaitBacklog(t.Context(), most, nil); err != nil {
						t.Error(err)
						return
					}
					if n := queue.Add(1); n > highest.Load() {
						highest.Store(n)
					}
				}
			})
		}
		loaders.Wait()
		close(stop)
		observer.Wait()
		took := time.Since(began)
		if h := highest.Load(); h > most || h < most/2 {
			t.Errorf("%d waited concurrently, with a bound of %d", h, most)
		}
		if limit := int64(took/(10*time.Millisecond)) + 2; q.asked.Load() > limit {
			t.Errorf("queried %d times in %v", q.asked.Load(), took)
		}
		t.Logf("%d loads in %v, at most %d waiting, asked %d times", loads, took, highest.Load(),
			q.asked.Load())
	})
}

// TestBacklogOfWhatCannotRun: notifications of observers that are paused, retired or without a
// process delay no loader, nor does a cluster that cannot report them.
func TestBacklogOfWhatCannotRun(t *testing.T) {
	many := uint64(1 << 40)
	for name, answer := range map[string]func() ([]*pb.ObserverState, error){
		"paused": held(&pb.ObserverState{
			Info: &pb.ObserverInfo{Paused: true}, Linked: true, Notifications: many,
		}),
		"retired": held(&pb.ObserverState{
			Info: &pb.ObserverInfo{Retired: true}, Linked: true, Notifications: many,
		}),
		"unlinked": held(&pb.ObserverState{Info: &pb.ObserverInfo{}, Notifications: many}),
		"blocked": held(&pb.ObserverState{
			Info: &pb.ObserverInfo{}, Linked: true, Notifications: many,
			Status: &pb.ObserverStatus{Running: 32, Stuck: 32, Queued: 100},
		}),
		"parked": held(&pb.ObserverState{Info: &pb.ObserverInfo{}, Linked: true, Parked: many}),
		"error":  func() ([]*pb.ObserverState, error) { return nil, errors.New("no meta") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, answer, func(t *testing.T, c *txn.Client, _ *queues) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for range 10_000 {
					if err := c.AwaitBacklog(ctx, 1000, nil); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func held(s *pb.ObserverState) func() ([]*pb.ObserverState, error) {
	return func() ([]*pb.ObserverState, error) { return []*pb.ObserverState{s}, nil }
}

// TestBacklogWaitEnds: the wait ends with its context, with the loader, and once the queue has
// space.
func TestBacklogWaitEnds(t *testing.T) {
	var queue atomic.Int64
	queue.Store(1000)
	answer := func() ([]*pb.ObserverState, error) {
		return []*pb.ObserverState{waiting(queue.Load())}, nil
	}
	inBubble(t, answer, func(t *testing.T, c *txn.Client, _ *queues) {
		ctx, cancel := context.WithCancel(t.Context())
		closed, ended := make(chan struct{}), make(chan error, 3)
		go func() { ended <- c.AwaitBacklog(ctx, 10, nil) }()
		go func() { ended <- c.AwaitBacklog(t.Context(), 10, closed) }()
		go func() { ended <- c.AwaitBacklog(t.Context(), 10, nil) }()
		<-time.After(time.Minute) // of the bubble: no one proceeds
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatalf("somebody was let through: %v", <-ended)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("context: %v", err)
		}
		close(closed)
		if err := <-ended; !errors.Is(err, txn.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		queue.Store(9)
		if err := <-ended; err != nil {
			t.Errorf("room: %v", err)
		}
	})
}
