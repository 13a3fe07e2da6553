package leaderjobs

import (
	"fmt"

	"github.com/percolator-go/percolator/actors/timers"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/version"
)

// Durable timers (Tx.NotifyAfter) are cells of a table of the cluster's own, and the job that
// fires them is one of those of meta's leader: it moves with the leadership, and what is due
// meanwhile waits. Two such jobs at once, for a moment, are harmless: each timer is deleted
// and its row notified in one transaction (ADR 0044).

// startTimers starts the job that fires durable timers. It keeps nothing here but its figures,
// which metrics read. The worker of changes calls it.
func (l *Jobs) startTimers() error {
	j, err := timers.Spawn(l.cfg.System, timers.Config{
		Meta: struct {
			*meta.Observers
			*meta.Schema
		}{l.cfg.Meta.Observers, l.cfg.Meta.Schema},
		Client: l.cfg.Client, Stats: &l.timers, Logger: l.cfg.Node.Logger,
		// A build that knows no timers would take their table for damage, so nothing is
		// fired, and no client sets one, before all nodes know them.
		Ready: func() bool { return l.cfg.Gate.Has(version.Timers) },
	})
	if err != nil {
		return fmt.Errorf("leaderjobs: start the timers: %w", err)
	}
	l.running = append(l.running, j)
	return nil
}

// Timers implements telemetry.Jobs. It returns the counters of all timers jobs of this process.
func (l *Jobs) Timers() *timers.Stats { return &l.timers }
