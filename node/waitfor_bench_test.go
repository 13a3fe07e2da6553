package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/notifytest"
	"github.com/percolator-go/percolator/node"
)

// cascades are a benchmark's recent cascades, by writer.
type cascades struct {
	mu    sync.Mutex
	begun [][]cascadeBegun
}

// cascadeBegun is a cascade begun by a commit of a row.
type cascadeBegun struct {
	row string
	to  int
	at  percolator.Timestamp
}

// begin begins a cascade and waits for its effects.
func (c *cascades) begin(ctx context.Context, db *percolator.DB, who, n int) (cascadeBegun, error) {
	one := cascadeBegun{row: fmt.Sprintf("n%d.%d", who, n)}
	var err error
	if one.to, one.at, err = notifytest.Begin(ctx, db, one.row); err != nil {
		return one, err
	}
	c.mu.Lock()
	c.begun[who] = append(c.begun[who][max(0, len(c.begun[who])-9):], one)
	c.mu.Unlock()
	_, err = db.WaitFor(ctx, one.at)
	return one, err
}

// last returns when the last effect of the cascades begun up to at was committed.
func (c *cascades) last(ctx context.Context, db *percolator.DB,
	at percolator.Timestamp) (last percolator.Timestamp, err error) {
	c.mu.Lock()
	begun := slices.Concat(c.begun...)
	c.mu.Unlock()
	for _, one := range begun {
		if one.at > at {
			continue
		}
		effect, err := notifytest.LastEffect(ctx, db, one.row, one.to)
		if err != nil {
			return 0, err
		}
		last = max(last, effect)
	}
	return last, nil
}

// BenchmarkWaitFor: the time between the last effect of a commit and the return of WaitFor, for
// cascades of five observers over twelve tablets: on one node and on three, for one client and for
// eight. In milliseconds, the resolution of timestamps.
func BenchmarkWaitFor(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("nodes=%d/clients=%d", nodes, clients), func(b *testing.B) {
				benchmarkWaitFor(b, nodes, clients)
			})
		}
	}
}

func benchmarkWaitFor(b *testing.B, nodes, clients int) {
	r := newRig(b, nodes, func(_ int, c *node.Config) {
		c.Observers = notifytest.RegisterCascade
	})
	ctx, db := b.Context(), r.nodes[0].DB()
	for _, table := range notifytest.CascadeTables() {
		if err := db.CreateTable(ctx, table); err != nil {
			b.Fatal(err)
		}
	}
	if nodes > 1 {
		r.spread(ctx, nodes)
	}
	all := &cascades{begun: make([][]cascadeBegun, clients)}
	busy, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	for i := 1; i < clients; i++ {
		others.Go(func() {
			for n := 0; busy.Err() == nil; n++ {
				_, _ = all.begin(busy, db, i, n)
			}
		})
	}
	var late, whole []time.Duration
	for n := 0; b.Loop(); n++ {
		one, err := all.begin(ctx, db, 0, n)
		if err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		last, err := all.last(ctx, db, one.at)
		if err != nil {
			b.Fatal(err)
		}
		late, whole = append(late, now.Sub(last.Time())), append(whole, now.Sub(one.at.Time()))
	}
	for what, took := range map[string][]time.Duration{"late": late, "whole": whole} {
		slices.Sort(took)
		for _, p := range []int{50, 90} {
			d := took[len(took)*p/100]
			b.ReportMetric(float64(d.Milliseconds()), fmt.Sprintf("ms-%s-p%d", what, p))
		}
	}
}
