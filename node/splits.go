package node

import (
	"cmp"
	"fmt"

	"github.com/percolator-go/percolator/actors/splitter"
)

// startSplitter starts the job that splits tablets by size and load.
func (l *leaderJobs) startSplitter() error {
	n := l.n
	tune := n.cfg.Splits
	if tune.Off {
		return nil
	}
	s, err := splitter.Spawn(n.system, splitter.Config{
		Client: n.client, Meta: n.meta, Overview: lately{n.census, cmp.Or(tune.Interval, splitter.DefaultInterval) / 2}, MaxBytes: tune.MaxBytes, MaxLoad: tune.MaxLoad, Interval: tune.Interval,
		MaxTablets: tune.MaxTablets, Logger: n.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(s, func() {})
	return nil
}
