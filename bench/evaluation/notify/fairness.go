package notify

import (
	"context"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/node"
)

const fairTable = "fairness"

// fairness measures two observers with a backlog each, and a third with a few changes beside them.
func fairness(ctx context.Context, r *harness.Run) error {
	calm, left, right := newQueue("calm", pick(r, 10_000, 500)), newTable("left"), newTable("right")
	count := pick(r, 30_000, 300)
	d := pick(r, 3*time.Second, 200*time.Millisecond)
	return withNode(ctx, r, func(reg *percolator.Registry) {
		calm.register(reg)
		left.single(reg)
		right.single(reg)
	}, nil, func(n *node.Node) error {
		db := n.DB()
		const rate = 100
		alone, _, err := calm.at(ctx, db, rate, d)
		if err != nil {
			return err
		}
		for _, t := range []*table{left, right} {
			if err := t.dirty(ctx, db, count); err != nil {
				return err
			}
		}
		for _, t := range []*table{left, right} {
			if _, err := db.Admin().ResumeObserver(ctx, t.name); err != nil {
				return err
			}
		}
		beside, _, err := calm.at(ctx, db, rate, d)
		if err != nil {
			return err
		}
		few, much := min(left.ran.Load(), right.ran.Load()), max(left.ran.Load(), right.ran.Load())
		for row, l := range map[string]*harness.Latencies{"100 changes/s, alone": alone, "100 changes/s, beside two backlogs": beside} {
			r.Value(fairTable, row, "ms p50", l.Millis(0.5))
			r.Value(fairTable, row, "ms p99", l.Millis(0.99))
		}
		r.Ratio(fairTable, "runs of one backlogged observer / the other", float64(few)/float64(max(much, 1)), "≥ 0.9")
		if err := calm.check(ctx, db); err != nil {
			return err
		}
		for _, t := range []*table{left, right} {
			if err := t.check(ctx, db, count); err != nil {
				return err
			}
		}
		return nil
	})
}
