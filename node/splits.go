package node

import (
	"cmp"
	"fmt"

	"github.com/percolator-go/percolator/actors/splitter"
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
	// Nobody wakes the splitter or asks for its status, so no field is set to it.
	l.began(s, func() {})
	return nil
}
