package node

import (
	"cmp"
	"fmt"

	"github.com/percolator-go/percolator/actors/merger"
	"github.com/percolator-go/percolator/actors/splitter"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
)

// startSplitter starts the job that splits tablets by size and load, unless the policy
// forbids it. The worker of changes calls it; this file owns nothing. The job is content
// with answers half its interval old, which are newer than its last turn.
func (l *leaderJobs) startSplitter() error {
	tune, p := l.cfg.Splits, l.policy
	if p.GetNoSplits() {
		return nil
	}
	s, err := splitter.Spawn(l.system, splitter.Config{
		Client: l.client, Meta: l.meta.Schema, Overview: recentStatuses{
			l.statuses, cmp.Or(tune.Interval, splitter.DefaultInterval) / 2,
		}, MaxBytes: p.GetSplitBytes(), MaxLoad: p.GetSplitLoad(), Interval: tune.Interval,
		MaxTablets: int(p.GetSplitMaxTablets()), Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(s, func() { l.splitter = s })
	return nil
}

// startMerger starts the job that merges tablets. If the policy forbids splits, or the cluster's
// version merges, it only finishes merges that were begun. The rest is as with the splitter.
func (l *leaderJobs) startMerger() error {
	tune, p := l.cfg.Splits, l.policy
	interval := cmp.Or(tune.Interval, merger.DefaultInterval)
	m, err := merger.Spawn(l.system, merger.Config{
		Meta: l.meta.Merges, Overview: recentStatuses{l.statuses, interval / 4},
		FinishOnly: p.GetNoSplits() || !l.gate.Has(version.Merges),
		MaxBytes:   cmp.Or(p.GetSplitBytes(), splitter.DefaultMaxBytes),
		MaxLoad:    cmp.Or(p.GetSplitLoad(), splitter.DefaultMaxLoad),
		Interval:   interval, After: tune.MergeAfter, Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(m, func() { l.merger = m })
	return nil
}

// splitsStatus returns the splitter's status; nil if it does not run here.
func (l *leaderJobs) splitsStatus() *pb.SplitsStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.splitter == nil {
		return nil
	}
	s := l.splitter.Status()
	if l.merger != nil {
		s.Merged = l.merger.Merged()
	}
	return s
}
