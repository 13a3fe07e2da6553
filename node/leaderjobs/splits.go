package leaderjobs

import (
	"cmp"

	"github.com/percolator-go/percolator/actors/merger"
	"github.com/percolator-go/percolator/actors/splitter"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
)

// startSplitter starts the job that splits tablets by size and load, unless the policy
// forbids it. The worker of changes calls it; this file owns nothing. The job is content
// with answers half its interval old, which are newer than its last turn.
func (l *Jobs) startSplitter() error {
	tune, p := l.cfg.Node.Splits, l.policy
	if p.GetNoSplits() {
		return nil
	}
	s, err := splitter.Spawn(l.cfg.System, splitter.Config{
		Client: l.cfg.Client, Meta: l.cfg.Meta.Schema, Overview: recentStatuses{
			l.statuses, cmp.Or(tune.Interval, splitter.DefaultInterval) / 2,
		}, MaxBytes: p.GetSplitBytes(), MaxLoad: p.GetSplitLoad(), Interval: tune.Interval,
		MaxTablets: int(p.GetSplitMaxTablets()), Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.splitter, s, "the splitter", err)
}

// startMerger starts the job that merges tablets. If the policy forbids splits, or the cluster's
// version does not support merges, the job only finishes merges that were begun. It is content with
// answers a quarter of its interval old.
func (l *Jobs) startMerger() error {
	tune, p := l.cfg.Node.Splits, l.policy
	interval := cmp.Or(tune.Interval, merger.DefaultInterval)
	m, err := merger.Spawn(l.cfg.System, merger.Config{
		Meta: l.cfg.Meta.Merges, Overview: recentStatuses{l.statuses, interval / 4},
		FinishOnly: p.GetNoSplits() || !l.cfg.Gate.Has(version.Merges),
		MaxBytes:   cmp.Or(p.GetSplitBytes(), splitter.DefaultMaxBytes),
		MaxLoad:    cmp.Or(p.GetSplitLoad(), splitter.DefaultMaxLoad),
		Interval:   interval, After: tune.MergeAfter, Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.merger, m, "the merger", err)
}

// SplitsStatus returns the splitter's status, with the number of merges; nil if the splitter does
// not run here.
func (l *Jobs) SplitsStatus() *pb.SplitsStatus {
	j := l.splitter.Load()
	if j == nil {
		return nil
	}
	s := j.Status()
	if m := l.merger.Load(); m != nil {
		s.Merged = m.Merged()
	}
	return s
}
