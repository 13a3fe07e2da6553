package leaderjobs

import (
	"github.com/percolator-go/percolator/actors/expirer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file has the job that deletes expired cells. A table can have an expiry only once all nodes
// support expiry, so the job checks no Feature.

// startExpirer starts the job. The worker of changes calls it.
func (l *Jobs) startExpirer() error {
	j, err := expirer.Spawn(l.cfg.System, expirer.Config{
		Tables: l.cfg.Meta.Schema, Client: l.cfg.Client, Stats: &l.expired, Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.expirer, j, "the expirer", err)
}

// WakeExpiry makes the job read the tables' expiry at once, if it runs here.
func (l *Jobs) WakeExpiry() {
	if j := l.expirer.Load(); j != nil {
		j.Wake()
	}
}

// Expiry returns the rules and their lags; nil if the job does not run here.
func (l *Jobs) Expiry() *pb.ExpiryStatus {
	if j := l.expirer.Load(); j != nil {
		return j.Status()
	}
	return nil
}

// Expired implements telemetry.Jobs. It returns the counters of all jobs of this process.
func (l *Jobs) Expired() *expirer.Stats { return &l.expired }
