package ablation

import (
	"context"
	"errors"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
	"github.com/percolator-go/percolator/node/config"
)

// Names of the plots, with one series per place that lingers or per number of callers, and of the
// tables.
const (
	byMessagesRate   = "max-messages-rate"
	byMessagesMillis = "max-messages-latency"
	byLingerRate     = "linger-rate"
	byLingerMillis   = "linger-latency"
	lingerTable      = "linger, 64 callers, and 1,000 commits/s in an open loop"
	messagesTable    = "MaxMessages of client, tablets and log"
)

// offset is where plots with a logarithmic axis show a linger of 0, in ms.
const offset = 0.01

// point is one measurement of commits of single cells.
type point struct {
	setup
	callers  int
	messages int           // MaxMessages of client, tablets and log; 0: the point measures linger
	where    string        // what lingers: client, tablets or log
	linger   time.Duration // also 0, for comparison
}

func points(r *harness.Run) (all []point) {
	messages, lingers := []int{1, 4, 16, 64, 256, 1024, 4096}, []time.Duration{0, 100, 200, 500, 1000, 2000, 5000}
	if r.Smoke {
		messages, lingers = []int{1, 1024}, []time.Duration{0, 500}
	}
	for _, m := range messages {
		for _, callers := range []int{64, 512} {
			b := config.BatchConfig{MaxMessages: m}
			all = append(all, point{setup: setup{batch: config.Batch{Tablet: b, Log: b, Client: b}}, callers: callers, messages: m})
		}
	}
	for _, us := range lingers {
		b := config.BatchConfig{Linger: us * time.Microsecond}
		all = append(all,
			point{setup: setup{batch: config.Batch{Client: b}}, callers: 64, where: "client", linger: b.Linger},
			point{setup: setup{batch: config.Batch{Tablet: b}}, callers: 64, where: "tablets", linger: b.Linger},
			point{setup: setup{batch: config.Batch{Log: b}}, callers: 64, where: "log", linger: b.Linger})
	}
	return all
}

// limits measures each point once.
func limits(ctx context.Context, r *harness.Run, round int) error {
	r.Axes(byMessagesRate, "MaxMessages", "commits/s", true, false)
	r.Axes(byMessagesMillis, "MaxMessages", "ms p50 of a commit, closed loop", true, false)
	r.Axes(byLingerRate, "linger, ms (0 at the left edge)", "commits/s, 64 callers", true, false)
	r.Axes(byLingerMillis, "linger, ms (0 at the left edge)", "ms p50 of a commit, at 1,000/s", true, true)
	all := points(r)
	for _, i := range order(r, round, len(all)) {
		err := with(ctx, r, all[i].setup, func(repo *repository) error { return all[i].measure(ctx, r, repo) })
		if err != nil {
			return fmt.Errorf("%+v: %w", all[i], err)
		}
	}
	return nil
}

func (p point) measure(ctx context.Context, r *harness.Run, repo *repository) error {
	column := percolator.Column{Table: "bench", Name: "c"}
	if err := repo.db.CreateTable(ctx, percolator.TableSpec{Name: column.Table}); err != nil {
		return err
	}
	commit := func(ctx context.Context, caller, i int) error {
		return repo.db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("%d/%d", caller, i), column, make([]byte, 100))
			return nil
		})
	}
	d := 800 * time.Millisecond
	if r.Smoke {
		d = 50 * time.Millisecond
	}
	cpu := harness.CPUOf()
	f, err := turns.Repeat(ctx, p.callers, d/4, d, commit)
	if err != nil {
		return err
	}
	micros := float64((harness.CPUOf() - cpu).Microseconds()) / float64(len(f.Latencies)) * 0.8 // the CPU includes the warm-up, a fifth of the calls
	if p.messages > 0 {
		row := fmt.Sprintf("%d, %d callers", p.messages, p.callers)
		r.Value(messagesTable, row, "/s", f.PerSecond)
		r.Value(messagesTable, row, "ms p50", f.Millis(0.5)[0])
		r.Value(messagesTable, row, "µs CPU", micros)
		series := fmt.Sprintf("%d callers", p.callers)
		r.Point(byMessagesRate, series, float64(p.messages), f.PerSecond)
		r.Point(byMessagesMillis, series, float64(p.messages), f.Millis(0.5)[0])
		return nil
	}
	const rate = 1000
	l, err := harness.OpenLoop(ctx, rate, d, 10_000, func(ctx context.Context, i int) error { return commit(ctx, -1, i) })
	if err != nil && !errors.Is(err, harness.ErrLoad) {
		return err
	}
	row, x := fmt.Sprintf("%s %v", p.where, p.linger), max(offset, p.linger.Seconds()*1000)
	r.Value(lingerTable, row, "/s", f.PerSecond)
	r.Value(lingerTable, row, "µs CPU", micros)
	r.Value(lingerTable, row, "ms p50 at 1,000/s", l.Millis(0.5))
	r.Value(lingerTable, row, "ms p99 at 1,000/s", l.Millis(0.99))
	r.Point(byLingerRate, p.where, x, f.PerSecond)
	r.Point(byLingerMillis, p.where, x, l.Millis(0.5))
	return nil
}
