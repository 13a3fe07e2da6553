package node

import (
	"fmt"

	"github.com/percolator-go/percolator/actors/timers"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/version"
)

// startTimers starts the job that fires durable timers. It keeps nothing here but its figures,
// which metrics read. The worker of changes calls it.
func (l *leaderJobs) startTimers() error {
	j, err := timers.Spawn(l.system, timers.Config{
		Meta: struct {
			*meta.Observers
			*meta.Schema
		}{l.meta.Observers, l.meta.Schema},
		Client: l.client, Stats: &l.timers, Logger: l.cfg.Logger,
		Ready: func() bool { return l.gate.Has(version.Timers) },
	})
	if err != nil {
		return fmt.Errorf("node: timers: %w", err)
	}
	l.began(j, func() {})
	return nil
}
