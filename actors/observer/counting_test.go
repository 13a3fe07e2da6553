package observer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/actors/scanner"
	"github.com/percolator-go/percolator/internal/notifytest"
)

func bounded(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestExactCounting: with one change per row, a strong observer's counter equals the number of rows, whatever finds the
// dirty cells and however often (§2.4: at most one transaction commits per change, and none is forgotten).
func TestExactCounting(t *testing.T) {
	for name, hints := range map[string]scanner.Hints{"on": scanner.HintsOn, "off": scanner.HintsOff, "twice": scanner.HintsTwice} {
		for _, noLocks := range []bool{false, true} {
			for _, shards := range []int{1, 64} {
				t.Run(fmt.Sprintf("hints=%s/lockd=%t/counters=%d", name, !noLocks, shards), func(t *testing.T) {
					work := notifytest.Counting{Rows: 300, Shards: shards}
					n := notifytest.Start(t, notifytest.NodeConfig{
						Cluster: notifytest.NewCluster(), Hints: hints, NoLocks: noLocks,
						Register: func(r *percolator.Registry) { work.Register(r) },
						Scanner:  func(c *scanner.Config) { c.Young = -1 }, // scans and hints meet on every row
					})
					count(t, n, work)
				})
			}
		}
	}
}

func count(t *testing.T, n *notifytest.Node, work notifytest.Counting) {
	t.Helper()
	ctx := bounded(t, 60*time.Second)
	if err := work.Load(ctx, n.DB); err != nil {
		t.Fatal(err)
	}
	if err := work.Check(ctx, n.DB); err != nil {
		t.Error(err)
	}
	s := n.Stats("counting")
	t.Logf("%+v p50 %d ms", s, s.Latency.Quantile(0.5))
	t.Logf("%+v", n.Scanners.Stats())
	if s.Commits != uint64(work.Rows) || s.Failures != 0 || s.Parked != 0 {
		t.Errorf("%d commits, %d failures, %d parked of %d rows", s.Commits, s.Failures, s.Parked, work.Rows)
	}
}

// TestTwoWorkersOneChange holds two workers inside runs for the same change, so that both have found it dirty: one commits,
// the other conflicts on the acknowledgment, runs again and finds it clean. An acknowledgment outside the transaction
// counts twice here.
func TestTwoWorkersOneChange(t *testing.T) {
	cluster := notifytest.NewCluster()
	both := newBarrier(2)
	work := notifytest.Counting{Rows: 40, Inside: func(ctx context.Context, row string, _ *percolator.Tx) error {
		return both.meet(ctx, row)
	}}
	register := func(r *percolator.Registry) { work.Register(r, percolator.Concurrency(64)) }
	tune := func(c *observer.Config) { c.Workers = 64 }
	one := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: 1, NoLocks: true, Hints: scanner.HintsOff, Register: register, Observer: tune,
	})
	two := notifytest.Start(t, notifytest.NodeConfig{
		Cluster: cluster, ID: 2, NoLocks: true, Hints: scanner.HintsOff, Register: register, Observer: tune,
	})
	ctx := bounded(t, 60*time.Second)
	if err := work.Load(ctx, one.DB); err != nil {
		t.Fatal(err)
	}
	if err := work.Check(ctx, two.DB); err != nil {
		t.Error(err)
	}
	a, b := one.Stats("counting"), two.Stats("counting")
	t.Logf("%+v\n%+v", a, b)
	if got := a.Commits + b.Commits; got != uint64(work.Rows) {
		t.Errorf("%d commits of %d changes", got, work.Rows)
	}
	if a.Conflicts+b.Conflicts == 0 {
		t.Error("no conflict: the workers never met")
	}
}

// barrier lets the first n visitors of a key in together; later ones pass.
type barrier struct {
	n    int
	mu   sync.Mutex
	keys map[string]*meeting
}

type meeting struct {
	come int
	full chan struct{}
}

func newBarrier(n int) *barrier { return &barrier{n: n, keys: map[string]*meeting{}} }

// meet waits for the others, but not for ever: a worker may have found the change done already.
func (b *barrier) meet(ctx context.Context, key string) error {
	b.mu.Lock()
	m := b.keys[key]
	if m == nil {
		m = &meeting{full: make(chan struct{})}
		b.keys[key] = m
	}
	m.come++
	if m.come == b.n {
		close(m.full)
	}
	b.mu.Unlock()
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	select {
	case <-m.full:
	case <-late.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
