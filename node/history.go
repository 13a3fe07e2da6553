package node

import (
	"cmp"
	"context"
	"fmt"

	"github.com/percolator-go/percolator/actors/collector"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/policy"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file gives the collector what it needs of the node. It owns nothing: what was
// dropped is in meta's catalogue, and how far collection has come in the tablets. The
// job's goroutine calls it; of two nodes that do, for a moment, both may.

// startCollector starts the job that bounds history (invariant 11 of design section 4),
// unless the policy forbids it.
func (l *leaderJobs) startCollector() error {
	tune, history := l.cfg.Collection, policy.Millis(l.policy.GetHistoryMs())
	if l.policy.GetNoCollection() {
		return nil
	}
	// Statuses half an interval old are newer than the collector's last turn.
	age := cmp.Or(tune.Interval, min(collector.DefaultInterval, history/10)) / 2
	// MaxHold bounds what leases of open snapshots and of backups may hold back, also against
	// a program that never lets go.
	c, err := collector.Spawn(l.system, collector.Config{
		Client: l.client, Record: l.meta.History,
		Drops:    drops{l.meta.Schema, l.meta.Observers, l.client},
		Overview: recentStatuses{l.statuses, age}, History: history, Interval: tune.Interval,
		ForceAfter: tune.ForceAfter, MaxHold: policy.Millis(l.policy.GetMaxHoldMs()),
		Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	l.began(c, func() { l.collector = c })
	return nil
}

// drops looks after the catalogue's dropped tables.
type drops struct {
	schema    *meta.Schema
	catalogue *meta.Observers
	client    *txn.Client
}

// Tend implements collector.Drops. No safepoint is being raised while it is called: a
// tablet that has passed a drop has begun to delete, and says so until it is done.
func (d drops) Tend(ctx context.Context, tablets []*pb.StatusResponse) (waiting bool, err error) {
	c, err := d.catalogue.Catalogue(ctx)
	if err != nil || len(c.GetDroppedTables()) == 0 {
		return false, err
	}
	// A drop gets its timestamp once every tablet knows of it, see DateDrops.
	if err := d.schema.DateDrops(ctx, d.client.Timestamp); err != nil {
		return false, err
	}
	for _, t := range tablets {
		// A push was cut short: the tablet does not know yet what to delete.
		if t.CatalogueVersion < c.Version {
			return true, d.catalogue.Sync(ctx)
		}
	}
	err = d.schema.ForgetDrops(ctx, func(id mvcc.TableID, droppedAt mvcc.Timestamp) bool {
		// A table is gone once every tablet that has a part of its range has passed the
		// drop and has nothing left to delete. If none of those that answered has a part,
		// its tablets are the ones that are missing: then it is not known to be gone.
		gone := false
		for _, t := range tablets {
			if _, holds := wire.Clip(t.Tablet, mvcc.Span{Table: id}); !holds {
				continue
			}
			if gone = t.Garbage == 0 && mvcc.Timestamp(t.Safepoint) > droppedAt; !gone {
				break
			}
		}
		waiting = waiting || !gone
		return gone
	})
	return waiting, err
}
