package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

// TestTerminatedInTurn: three processes under writes; each in turn receives SIGTERM, ends with exit
// code 0 within 30 s, and is restarted. Callers with a timeout of 10 s see no error.
func TestTerminatedInTurn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := clustertest.Start(ctx, t, cluster.Config{Nodes: 3})
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: cell.Table,
		SplitKeys: []string{"1", "2", "3"}}); err != nil {
		t.Fatal(err)
	}
	clustertest.Replicated(ctx, t, db, 5)
	w := writeOn(ctx, t, db, 4)
	for i, p := range c.Nodes() {
		w.more(ctx, t)
		began := time.Now()
		if err := p.Terminate(30 * time.Second); err != nil {
			t.Error(err)
		}
		t.Logf("node %d ended in %v", i, time.Since(began).Round(time.Millisecond))
		w.more(ctx, t)
		pause := time.Duration(w.worst.Swap(0)).Round(time.Millisecond)
		t.Logf("the longest write took %v", pause)
		if pause > 5*time.Second {
			t.Errorf("a write took %v while node %d handed over", pause, i)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := c.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		clustertest.Replicated(ctx, t, db, 5)
	}
	w.more(ctx, t)
	w.stop()
}

func poll(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		}
	}
}

// writers write rows of their own, one transaction after the other, each with a timeout of 10 s.
type writers struct {
	done  []atomic.Int64
	worst atomic.Int64 // the longest duration of one, in nanoseconds
	end   context.CancelFunc
	runs  sync.WaitGroup
}

func writeOn(ctx context.Context, t *testing.T, db *percolator.DB, count int) *writers {
	ctx, end := context.WithCancel(ctx)
	w := &writers{done: make([]atomic.Int64, count), end: end}
	for i := range count {
		w.runs.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
				err := db.Transact(attempt, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set(fmt.Sprintf("%d/%d", i, n%100), cell, []byte("x"))
					return nil
				})
				cancel()
				if err != nil && ctx.Err() == nil {
					t.Errorf("a patient caller: %v", err)
				}
				w.done[i].Add(1)
				if took := int64(time.Since(began)); took > w.worst.Load() {
					w.worst.Store(took)
				}
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

// more waits until every writer has written 20 times more.
func (w *writers) more(ctx context.Context, t *testing.T) {
	t.Helper()
	before := make([]int64, len(w.done))
	for i := range w.done {
		before[i] = w.done[i].Load()
	}
	poll(ctx, t, "writes go on", func() bool {
		for i := range w.done {
			if w.done[i].Load() < before[i]+20 {
				return false
			}
		}
		return true
	})
}

func (w *writers) stop() {
	w.end()
	w.runs.Wait()
}
