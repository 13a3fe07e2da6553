package leaderjobs

import (
	"cmp"

	"github.com/percolator-go/percolator/actors/collector"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/policy"
)

// This file gives the collector what it needs of the node. It owns nothing; the worker of changes
// calls it.

// startCollector starts the job that bounds history (design section 4, "Bounded history"),
// unless the policy forbids it.
func (l *Jobs) startCollector() error {
	tune, history := l.cfg.Node.Collection, policy.Millis(l.policy.GetHistoryMs())
	if l.policy.GetNoCollection() {
		return nil
	}
	// Statuses half an interval old are newer than the collector's last turn.
	age := cmp.Or(tune.Interval, min(collector.DefaultInterval, history/10)) / 2
	// MaxHold bounds what leases of open snapshots and of backups may hold back, even if a program
	// never releases its lease.
	c, err := collector.Spawn(l.cfg.System, collector.Config{
		Client: l.cfg.Client, Record: l.cfg.Meta.History,
		Drops:    meta.Drops{Schema: l.cfg.Meta.Schema, Now: l.cfg.Client.Timestamp},
		Overview: recentStatuses{l.statuses, age}, History: history, Interval: tune.Interval,
		ForceAfter: tune.ForceAfter, MaxHold: policy.Millis(l.policy.GetMaxHoldMs()),
		Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.collector, c, "the collector", err)
}
