package leaderjobs

import (
	"fmt"

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
	if err != nil {
		return fmt.Errorf("leaderjobs: start the expirer: %w", err)
	}
	l.began(j, func() { l.expirer = j })
	return nil
}

// WakeExpiry makes the job read the tables' expiry at once, if it runs here.
func (l *Jobs) WakeExpiry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expirer != nil {
		l.expirer.Wake()
	}
}

// Expiry returns the rules and their lags; nil if the job does not run here.
func (l *Jobs) Expiry() *pb.ExpiryStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.expirer == nil {
		return nil
	}
	return l.expirer.Status()
}

// Expired implements telemetry.Jobs. It returns the counters of all jobs of this process.
func (l *Jobs) Expired() *expirer.Stats { return &l.expired }
