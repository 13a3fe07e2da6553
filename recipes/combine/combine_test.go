package combine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/recipes/combine"
	"github.com/percolator-go/percolator/tuple"
)

var visits = percolator.Column{Table: "pages", Name: "visits"}

// Visits are counted by transactions that also do other work, and that never conflict over the
// counter.
func ExampleCounter() {
	counter := combine.Counter("visits", visits)
	register := func(r *percolator.Registry) { // what app.Main is given
		r.Table(percolator.TableSpec{Name: "pages"})
		counter.Register(r)
	}
	visit := func(ctx context.Context, db *percolator.DB, page string) error {
		return db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			counter.Add(tx, page, 1)
			return nil
		})
	}
	_, _ = register, visit
}

const (
	writers = 8
	each    = 40
)

// add counts from several goroutines, over three keys of which one is hot.
func add(t *testing.T, n *percolatortest.Node, q *combine.Queue[int64]) map[string]int64 {
	t.Helper()
	want := map[string]int64{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				key := []string{"hot", "hot", "hot", "warm", "cold"}[(w+i)%5]
				n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
					q.Add(tx, key, int64(i))
					q.Add(tx, key, 1) // a second one of the same key and transaction
					return nil
				})
				mu.Lock()
				want[key] += int64(i) + 1
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return want
}

func check(t *testing.T, n *percolatortest.Node, want map[string]int64) {
	t.Helper()
	got := n.Column(t, visits)
	for key, sum := range want {
		if got[key] != fmt.Sprint(sum) {
			t.Errorf("%s: %s, want %d", key, got[key], sum)
		}
	}
	if left := n.Column(t, percolator.Column{Table: "visits", Name: "update"}); len(left) > 0 {
		t.Errorf("%d updates are left", len(left))
	}
}

// TestCountsOnce injects every fault of a run: each update is in the sum exactly once.
func TestCountsOnce(t *testing.T) {
	for _, kind := range []percolatortest.Kind{
		percolatortest.CommitConflicts, percolatortest.CommitReplyLost, percolatortest.CommitUnknown,
		percolatortest.CommitLost, percolatortest.ClearLost, percolatortest.RunFails,
		percolatortest.RunPanics,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			q := combine.Counter("visits", visits)
			n := percolatortest.Start(t, register(q),
				percolatortest.DuplicateHints())
			n.Inject(t, percolatortest.Fault{Kind: kind, Observer: "visits", Times: 3})
			want := add(t, n, q)
			n.RunUntilIdle(t)
			check(t, n, want)
		})
	}
}

// TestCountsAfterCrash crashes the node while updates are pending.
func TestCountsAfterCrash(t *testing.T) {
	t.Parallel()
	q := combine.Counter("visits", visits)
	n := percolatortest.Start(t, register(q))
	want := add(t, n, q)
	n.Crash(t)
	n.RunUntilIdle(t)
	check(t, n, want)
}

// TestGetSeesWhatWaits reads sums of which a part is not combined yet: the queue's observer is
// blocked before its second run. It combines one update per run, so it has to notify itself.
func TestGetSeesWhatWaits(t *testing.T) {
	t.Parallel()
	started, proceed := make(chan struct{}, 100), make(chan struct{})
	q := combine.New(combine.Config[int64]{
		Name: "visits", Result: percolator.Typed(visits, percolator.Integer[int64]()), Batch: 1,
		Combine: func(_ string, sum int64, _ bool, more []int64) (int64, bool) {
			for _, n := range more {
				sum += n
			}
			return sum, sum != 0
		},
	})
	held := func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		started <- struct{}{}
		select {
		case <-proceed:
			return q.Drain(ctx, tx, n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "pages"})
		r.Weak("visits", percolator.Column{Table: "visits", Name: "wake"}, held)
	})
	sum := func(want int64) {
		t.Helper()
		n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
			got, ok, err := q.Get(ctx, tx, "a")
			if got != want || ok != (want != 0) {
				t.Errorf("the sum is %d (%v), want %d", got, ok, want)
			}
			return err
		})
	}
	sum(0)
	for i := range 5 {
		n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
			q.Add(tx, "a", int64(i+1))
			q.Add(tx, "b", 100)
			return nil
		})
	}
	<-started
	sum(15) // nothing is combined
	proceed <- struct{}{}
	<-started
	sum(15) // one is
	close(proceed)
	n.RunUntilIdle(t)
	sum(15)
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		q.Add(tx, "a", -15)
		return nil
	})
	n.RunUntilIdle(t)
	sum(0)
	if _, ok := n.Get(t, "a", visits); ok {
		t.Error("a sum of zero was kept")
	}
}

// TestRunIsOfOneSlice: a notification covers the updates of about its time. A run that scanned its
// whole bucket would pass over the tombstones of others.
func TestRunIsOfOneSlice(t *testing.T) {
	t.Parallel()
	q := combine.New(combine.Config[int64]{
		Name: "visits", Result: percolator.Typed(visits, percolator.Integer[int64]()), Buckets: 1,
		Combine: func(_ string, sum int64, _ bool, more []int64) (int64, bool) {
			return sum + more[0], true
		},
	})
	n := percolatortest.Start(t, func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "pages"})
		r.Weak("visits", percolator.Column{Table: "visits", Name: "wake"},
			func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
	})
	var start percolator.Timestamp
	n.Transact(t, func(ctx context.Context, tx *percolator.Tx) (err error) {
		start, err = tx.Start(ctx)
		q.Add(tx, "a", 7)
		return err
	})
	for i, want := range []bool{false, false, true} {
		at := uint64(start)>>26 + []uint64{1, ^uint64(0), 0}[i] // of the slices of 256 ms
		n.Transact(t, func(ctx context.Context, tx *percolator.Tx) error {
			return q.Drain(ctx, tx, percolator.Notification{Row: tuple.Pack(0, at)})
		})
		if _, ok := n.Get(t, "a", visits); ok != want {
			t.Errorf("after a run for slice %d: combined %v, want %v", i, ok, want)
		}
	}
}

func register(q *combine.Queue[int64]) func(*percolator.Registry) {
	return func(r *percolator.Registry) {
		r.Table(percolator.TableSpec{Name: "pages"})
		q.Register(r)
	}
}

// BenchmarkHotKey runs 64 concurrent additions to one key of a node on disk until the sum is
// complete, and compares with transactions that read and write the cell directly. per/s counts
// updates, repeats/op conflicts.
func BenchmarkHotKey(b *testing.B) {
	q := combine.Counter("visits", visits)
	number := percolator.Typed(visits, percolator.Integer[int64]())
	for name, add := range map[string]func(context.Context, *percolator.Tx) error{
		"queue": func(_ context.Context, tx *percolator.Tx) error {
			q.Add(tx, "hot", 1)
			return nil
		},
		"strong": func(ctx context.Context, tx *percolator.Tx) error {
			sum, _, err := number.Get(ctx, tx, "hot")
			number.Set(tx, "hot", sum+1)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			cfg := node.DefaultConfig()
			cfg.Dir, cfg.Observers = b.TempDir(), register(q)
			cfg.Listen, cfg.HTTP, cfg.Insecure = "127.0.0.1:0", "", true
			n, err := node.Open(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = n.Close(context.Background()) }()
			db := n.DB()
			b.SetParallelism(32) // times GOMAXPROCS
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := db.Transact(b.Context(), add); err != nil {
						b.Error(err)
					}
				}
			})
			if err := db.WaitIdle(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per/s")
			b.ReportMetric(float64(db.Stats().Retries)/float64(b.N), "repeats/op")
			if err := db.Transact(b.Context(), func(ctx context.Context, tx *percolator.Tx) error {
				got, _, err := number.Get(ctx, tx, "hot")
				if got != int64(b.N) {
					b.Errorf("%d of %d counted", got, b.N)
				}
				return err
			}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
