package node_test

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// order records the changes for which an observer ran, in the order of its runs.
type order struct {
	mu   sync.Mutex
	runs []percolator.Timestamp
}

func (o *order) add(ts percolator.Timestamp) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs = append(o.runs, ts)
	return len(o.runs)
}

// overtaken returns the largest number of younger changes that were run before one.
func (o *order) overtaken() (most int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var before []percolator.Timestamp // sorted
	for _, ts := range o.runs {
		at := sort.Search(len(before), func(i int) bool { return before[i] > ts })
		most = max(most, len(before)-at)
		before = append(before, 0)
		copy(before[at+1:], before[at:])
		before[at] = ts
	}
	return most
}

// TestBacklogIsWorkedOffInOrder: with thousands of pending changes and a steady stream of new ones,
// each change is overtaken by only a fraction of them: those already accepted, and the hints
// accepted before the backlog was detected. Two nodes work off their accepted changes at different
// speeds.
func TestBacklogIsWorkedOffInOrder(t *testing.T) {
	for nodes, bound := range map[int]int{1: 2000, 2: 3000} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.T) { workOff(t, nodes, bound) })
	}
}

// workOff makes n nodes work off a backlog and checks that no change is overtaken by more than
// bound younger ones.
func workOff(t *testing.T, nodes, bound int) {
	const (
		waiting = 4000
		fresh   = 4000
	)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	column := percolator.Column{Table: "work", Name: "c"}
	seen, done, change := &order{}, make(chan struct{}), make(chan struct{}, fresh)
	r := newRig(t, nodes, func(_ int, c *node.Config) {
		c.ObserverWorkers = 16 // the size of the windows depends on it
		c.Observers = func(reg *percolator.Registry) {
			reg.Strong("worker", column,
				func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
					switch n := seen.add(n.CommitTS); {
					case n <= fresh:
						change <- struct{}{}
					case n == waiting+fresh:
						close(done)
					}
					return nil
				}, percolator.Concurrency(8))
		}
	})
	pause := func(paused bool) {
		t.Helper()
		req := &pb.ControlObserverRequest{Name: "worker", Paused: &paused}
		if _, err := handle.Client(r.nodes[0].DB()).Admin().ControlObserver(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	// The order of rows is independent of the order of changes.
	name := func(i int) string { return fmt.Sprintf("%04x", uint16(i*40503)) }
	for i := 0; i < waiting; i += 50 {
		err := r.nodes[i%nodes].DB().Transact(ctx,
			func(_ context.Context, tx *percolator.Tx) error {
				for k := range 50 {
					tx.Set(name(i+k), column, []byte("x"))
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	pause(false)
	for i := range fresh {
		select {
		case <-change:
		case <-ctx.Done():
			t.Fatal("runs have stopped")
		}
		if err := set(ctx, r.nodes[i%nodes].DB(), name(waiting+i), column,
			[]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("not all changes were run for")
	}
	most := seen.overtaken()
	t.Logf("at most %d younger changes were run before one", most)
	if most > bound {
		t.Errorf("OVERTAKEN: %d younger changes were run before one", most)
	}
}

// TestCascadeRunsOnce: the leaves of a tree notify their shared parents, and those theirs, all in
// one column. In the order of their changes every parent runs after its leaves, so most run once;
// running the newest or a random change first would run a parent repeatedly.
func TestCascadeRunsOnce(t *testing.T) {
	const (
		leaves  = 6000
		parents = 600
		roots   = 60
		least   = leaves + parents + roots
	)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	column := percolator.Column{Table: "tree", Name: "sum"}
	name := func(level, i int) string { return fmt.Sprintf("%04x-%d", uint16(i*40503), level) }
	above := map[string]string{}
	for i := range leaves {
		above[name(0, i)] = name(1, i%parents)
		above[name(1, i%parents)] = name(2, i%roots)
	}
	var runs atomic.Int64
	n := open(t, "", func(c *node.Config) {
		c.Observers = func(reg *percolator.Registry) {
			reg.Weak("sum", column, func(_ context.Context, tx *percolator.Tx,
				n percolator.Notification) error {
				runs.Add(1)
				if up := above[n.Row]; up != "" {
					tx.Notify(up, column)
				}
				return nil
			})
		}
	})
	pause := func(paused bool) {
		t.Helper()
		req := &pb.ControlObserverRequest{Name: "sum", Paused: &paused}
		if _, err := handle.Client(n.DB()).Admin().ControlObserver(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	pause(true)
	for i := 0; i < leaves; i += 100 {
		err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			for k := range 100 {
				tx.Notify(name(0, i+k), column)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	pause(false)
	if err := n.DB().WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d runs, %d would do, in %v", runs.Load(), least,
		time.Since(began).Round(time.Millisecond))
	if got := runs.Load(); got < least || got > least*5/4 {
		t.Errorf("RUN-AGAIN: %d runs, %d would do", got, least)
	}
}
