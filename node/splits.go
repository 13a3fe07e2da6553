package node

import (
	"cmp"
	"fmt"

	"github.com/percolator-go/percolator/actors/splitter"
)

// startSplitter starts the job that splits tablets by size and load.
func (l *leaderJobs) startSplitter() error {
	tune, p := l.cfg.Splits, l.policy
	if p.GetNoSplits() {
		return nil
	}
	s, err := splitter.Spawn(l.system, splitter.Config{
		Client: l.client, Meta: l.meta, Overview: lately{
			l.census, cmp.Or(tune.Interval, splitter.DefaultInterval) / 2,
		}, MaxBytes: p.GetSplitBytes(), MaxLoad: p.GetSplitLoad(), Interval: tune.Interval,
		MaxTablets: int(p.GetSplitMaxTablets()), Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(s, func() {})
	return nil
}
