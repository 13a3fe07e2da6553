package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/node"
)

const (
	returnTable = "from the commit's return to the observer's start"
	dueTable    = "from the time at which the commit is due to the observer's start"
	peakTable   = "changes whose observer has started, closed loop of 256 callers"
	heldPlot    = "held-snapshot"
	// idleRate leaves the node idle between two changes.
	idleRate = 50
)

// side is one of the two nodes that held compares, with its queue. A snapshot is open on one only.
type side struct {
	name string // of rows and series
	q    *queue
	db   *percolator.DB
}

// held measures the latencies at several rates on two nodes in turns, for three minutes. On one of
// them a snapshot is open all the time and so holds the history of every row; the other keeps ten
// seconds of it. Both are loaded between the measurements, too.
func held(ctx context.Context, r *harness.Run) error {
	rows := pick(r, 10_000, 500)
	free, holds := side{name: "", q: newQueue("free", rows)}, side{name: "snapshot held", q: newQueue("held", rows)}
	shortHistory := func(c *node.Config) {
		c.History, c.Collection.MaxHold = 10*time.Second, time.Hour
	}
	return withNode(ctx, r, free.q.register, shortHistory, func(n *node.Node) error {
		free.db = n.DB()
		return withNode(ctx, r, holds.q.register, shortHistory, func(n *node.Node) error {
			holds.db = n.DB()
			return compare(ctx, r, free, holds)
		})
	})
}

func compare(ctx context.Context, r *harness.Run, free, holds side) (err error) {
	for _, s := range []side{free, holds} {
		if err := s.fill(ctx); err != nil {
			return err
		}
	}
	snapshot, err := holds.db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	opened := time.Now()
	seen, err := contents(ctx, snapshot, holds.q)
	if err != nil {
		return err
	}
	r.Axes(heldPlot, "age of the snapshot, s", "ms from the commit's return to the observer's start, at 3,000/s", false, true)
	// A round takes half a minute: the last one ends three minutes after the snapshot was opened.
	total := pick(r, 150*time.Second, time.Second)
	for round := range r.Rounds {
		if err := age(ctx, opened.Add(total*time.Duration(round+1)/time.Duration(r.Rounds)), free, holds); err != nil {
			return err
		}
		order := []side{free, holds}
		if round%2 == 1 {
			order = []side{holds, free}
		}
		if err := rates(ctx, r, opened, order); err != nil {
			return err
		}
		if err := peaks(ctx, r, order); err != nil {
			return err
		}
	}
	now, err := contents(ctx, snapshot, holds.q)
	if err == nil && !bytes.Equal(now, seen) {
		err = errors.New("the snapshot has changed while it was open")
	}
	return errors.Join(err, free.q.check(ctx, free.db), holds.q.check(ctx, holds.db))
}

// fill writes each row once.
func (s side) fill(ctx context.Context) error {
	g, filling := errgroup.WithContext(ctx)
	g.SetLimit(256)
	for range s.q.rows {
		g.Go(func() error {
			_, err := s.q.change(filling, s.db)
			return err
		})
	}
	return errors.Join(g.Wait(), s.db.WaitIdle(ctx))
}

// contents returns the jobs that a snapshot reads, one after the other.
func contents(ctx context.Context, s *percolator.Snapshot, q *queue) (all []byte, err error) {
	for cell, err := range s.Scan(ctx, percolator.Rows(q.name), q.job) {
		if err != nil {
			return nil, err
		}
		all = append(append(all, cell.Row...), cell.Value...)
	}
	return all, nil
}

// age loads both nodes until a time, so that history accumulates.
func age(ctx context.Context, until time.Time, sides ...side) error {
	d := time.Until(until)
	if d <= 0 {
		return nil
	}
	const together = 3000
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range sides {
		g.Go(func() error {
			_, _, err := s.q.at(ctx, s.db, together/float64(len(sides)), d)
			if errors.Is(err, harness.ErrLoad) { // it only has to write history
				err = nil
			}
			return err
		})
	}
	return g.Wait()
}

// rates measures each rate on each side.
func rates(ctx context.Context, r *harness.Run, opened time.Time, order []side) error {
	d, all := 4*time.Second, []float64{idleRate, 300, 1000, 3000, 5000}
	if r.Smoke {
		d, all = 200*time.Millisecond, []float64{idleRate, 300}
	}
	for _, rate := range all {
		p50 := map[string]float64{}
		for _, s := range order {
			due, returned, err := s.q.at(ctx, s.db, rate, d)
			row := s.row(rate)
			if errors.Is(err, harness.ErrLoad) {
				r.Note("%s: %v", row, err)
			} else if err != nil {
				return fmt.Errorf("%s: %w", row, err)
			}
			for table, l := range map[string]*harness.Latencies{returnTable: returned, dueTable: due} {
				for _, q := range []float64{0.5, 0.99, 0.999} {
					r.Value(table, row, fmt.Sprintf("ms p%g", q*100), l.Millis(q))
				}
			}
			r.Value(dueTable, row, "/s", due.Rate)
			p50[s.name] = due.Millis(0.5)
			if rate == 3000 {
				r.Paper(returnTable, row, "about 2 s (§3.2)")
				series := "no snapshot"
				if s.name != "" {
					series = s.name
				}
				r.Point(heldPlot, series+", p50", float64(int(time.Since(opened).Seconds())), returned.Millis(0.5))
				r.Point(heldPlot, series+", p99", float64(int(time.Since(opened).Seconds())), returned.Millis(0.99))
			}
		}
		held := order[0].name + order[1].name
		r.Ratio(dueTable, side{name: held}.row(rate), p50[held]/p50[""], "p50 ≤ 1.1 of without")
	}
	return nil
}

func (s side) row(rate float64) string {
	row := fmt.Sprintf("%.0f/s", rate)
	if rate == idleRate {
		row = fmt.Sprintf("idle (%d/s)", idleRate)
	}
	if s.name != "" {
		row += ", " + s.name
	}
	return row
}

// peaks measures the highest rate on each side.
func peaks(ctx context.Context, r *harness.Run, order []side) error {
	d := pick(r, 3*time.Second, 200*time.Millisecond)
	rate := map[string]float64{}
	for _, s := range order {
		began, cpu := time.Now(), harness.CPUOf()
		count, err := s.peak(ctx, d)
		if err != nil {
			return err
		}
		took := time.Since(began).Seconds()
		row := "no snapshot"
		if s.name != "" {
			row = s.name
		}
		rate[s.name] = float64(count) / took
		r.Value(peakTable, row, "/s", rate[s.name])
		r.Value(peakTable, row, "µs CPU", float64((harness.CPUOf()-cpu).Microseconds())/float64(count))
	}
	held := order[0].name + order[1].name
	r.Ratio(peakTable, held, rate[held]/rate[""], "≥ 0.95 of without")
	return nil
}

// peak has callers make changes, each after the observer of the last has started.
func (s side) peak(ctx context.Context, d time.Duration) (int64, error) {
	const callers = 256
	var count atomic.Int64
	end := time.Now().Add(d)
	g, ctx := errgroup.WithContext(ctx)
	for range callers {
		g.Go(func() error {
			for time.Now().Before(end) {
				if _, err := s.q.change(ctx, s.db); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return count.Load(), err
}
