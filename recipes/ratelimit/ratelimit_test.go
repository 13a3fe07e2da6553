package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/ratelimit"
)

var outbox = percolator.Column{Table: "mail", Name: "outbox"}

// An observer sends at most ten mails per second, from all nodes together. Beyond that it waits,
// which does not count as a failure.
func Example() {
	limit := ratelimit.New(ratelimit.Config{
		Table: "limits", Every: 100 * time.Millisecond, Burst: 10,
	})
	send := func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		if err := limit.Acquire(ctx, "mails", 1); err != nil {
			return err
		}
		return nil // sends it
	}
	_ = func(r *percolator.Registry) {
		limit.Register(r)
		r.Strong("send", outbox, send)
	}
}

// start returns a node with the table.
func start(t testing.TB) *percolatortest.Node {
	return percolatortest.Start(t, nil,
		percolatortest.Tables(percolator.TableSpec{Name: "limits"}))
}

// TestNeverMoreThanBurst takes tokens from many goroutines, under conflicts and lost replies, from
// buckets that are never refilled: exactly Burst tokens are granted.
func TestNeverMoreThanBurst(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.TabletUnavailable,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			n := start(t)
			n.Inject(t, percolatortest.Fault{Kind: kind, Times: 5})
			l := ratelimit.New(ratelimit.Config{Table: "limits", Every: 1000 * time.Hour, Burst: 20})
			var mu sync.Mutex
			had := 0
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for range 10 {
						var wait time.Duration
						n.Transact(t, func(ctx context.Context, tx *percolator.Tx) (err error) {
							wait, err = l.Take(ctx, tx, "k", 1)
							return err
						})
						mu.Lock()
						if wait == 0 {
							had++
						} else if wait > 1000*time.Hour {
							t.Errorf("a token returns after %v", wait)
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			if had != 20 {
				t.Errorf("%d of 20 tokens were had", had)
			}
		})
	}
}

// TestComesBack takes all tokens, and again after some have been refilled.
func TestComesBack(t *testing.T) {
	t.Parallel()
	n := start(t)
	l := ratelimit.New(ratelimit.Config{Table: "limits", Every: time.Millisecond, Burst: 4, Shards: 2})
	take := func(count int) (wait time.Duration) {
		n.Transact(t, func(ctx context.Context, tx *percolator.Tx) (err error) {
			wait, err = l.Take(ctx, tx, "k", count)
			return err
		})
		return wait
	}
	for range 50 {
		for take(2) > 0 { // when this ends, a bucket was full again
			if t.Context().Err() != nil {
				return
			}
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	n := start(t)
	l := ratelimit.New(ratelimit.Config{Table: "limits", Every: time.Second, Burst: 4, Shards: 2})
	for _, count := range []int{-1, 3} {
		err := n.DB().Transact(t.Context(), func(ctx context.Context, tx *percolator.Tx) error {
			_, err := l.Take(ctx, tx, "k", count)
			return err
		})
		if !errors.Is(err, percolator.ErrInvalid) {
			t.Errorf("%d tokens: %v", count, err)
		}
	}
	for _, cfg := range []ratelimit.Config{
		{}, {Table: "t", Burst: 1}, {Table: "t", Every: 1, Burst: 1, Shards: 2},
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, percolator.ErrInvalid) {
					t.Errorf("%+v: %v", cfg, err)
				}
			}()
			ratelimit.New(cfg)
		}()
	}
}

// TestAcquire calls an external service from an observer whose own transactions conflict: it is
// called once per token, and never more often than the bucket allows.
func TestAcquire(t *testing.T) {
	t.Parallel()
	limit := ratelimit.New(ratelimit.Config{Table: "limits", Every: 20 * time.Millisecond, Burst: 1})
	var mu sync.Mutex
	var calls []time.Time
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "limits"})
		r.Strong("send", outbox, func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
			if err := limit.Acquire(ctx, "mails", 1); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, tx.StartTS().Time())
			return nil
		})
	})
	n.Inject(t, percolatortest.Fault{Kind: percolatortest.CommitConflicts, Observer: "send", Times: 3})
	began := time.Now()
	for i := range 20 {
		n.Set(t, fmt.Sprint(i), outbox, "mail")
	}
	n.RunUntilIdle(t)
	mu.Lock()
	defer mu.Unlock()
	took := time.Since(began)
	if len(calls) != 23 || took < 22*20*time.Millisecond {
		t.Errorf("%d calls in %v", len(calls), took)
	}
	if st := n.Stats(t, "send"); st.Failures != 0 || len(n.Parked(t, "send")) != 0 {
		t.Errorf("%+v", st)
	}
	if err := limit.Acquire(t.Context(), "mails", 1); !errors.Is(err, ratelimit.ErrNoDatabase) {
		t.Error(err)
	}
}

// BenchmarkTake takes from one hot key, 32 at a time, with one shard and with sixteen.
func BenchmarkTake(b *testing.B) {
	for _, shards := range []int{1, 16} {
		b.Run(fmt.Sprint("shards=", shards), func(b *testing.B) {
			n := start(b)
			l := ratelimit.New(ratelimit.Config{
				Table: "limits", Every: time.Nanosecond, Burst: 1 << 20, Shards: shards,
			})
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n.Transact(b, func(ctx context.Context, tx *percolator.Tx) error {
						_, err := l.Take(ctx, tx, "hot", 1)
						return err
					})
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per/s")
			b.ReportMetric(float64(n.DB().Stats().Retries)/float64(b.N), "repeats/op")
		})
	}
}
