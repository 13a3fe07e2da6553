package simtest

import (
	"context"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// releasePatience is the time after the end of the load for which a lock or a reservation may be in a
// leader's memory. After half of this time all have been released, or have expired and been
// resolved by the scanners of observed tables. Locks in other tables stay until a transaction
// encounters them (the paper's §2.2), so then the test reads them.
const releasePatience = time.Minute

// released waits until every tablet's leader has been observed without a lock in its memory: a
// remaining one belongs to no transaction that could end it, and blocks its cell for ever.
func (c *Cluster) released(ctx context.Context) error {
	left := map[uint64]uint64{} // by tablet
	for _, d := range c.descriptors(ctx) {
		left[d.TabletId] = 0
	}
	met := false
	for began := time.Now(); len(left) > 0; {
		if !met && time.Since(began) > releasePatience/2 {
			met = true
			if err := c.meetLocks(ctx); err != nil {
				return err
			}
		}
		for _, m := range c.list() {
			l := m.up()
			if l == nil {
				continue
			}
			status, err := l.transport.NodeStatus(ctx)
			for _, s := range status.GetTablets() {
				id := s.GetTablet().GetTabletId()
				if _, waits := left[id]; !waits || err != nil || !s.Leader {
					continue
				}
				if left[id] = s.Locks; s.Locks == 0 {
					delete(left, id)
				}
			}
		}
		if time.Since(began) > releasePatience {
			break
		}
		if !sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
	for id, n := range left {
		if n > 0 {
			return fmt.Errorf("the leader of tablet %d keeps %d locks without a holder", id, n)
		}
	}
	return nil
}

// meetLocks resolves the expired locks of unobserved tables, as readers would.
func (c *Cluster) meetLocks(ctx context.Context) error {
	_, db := c.Client(0)
	client := handle.Client(db)
	tables, err := client.Tables(ctx)
	if err != nil {
		return err
	}
	catalogue, err := client.Catalogue(ctx)
	if err != nil {
		return err
	}
	observed := map[uint32]bool{}
	for _, o := range catalogue.GetObservers() {
		observed[o.Table] = true
	}
	for _, t := range tables {
		if observed[t.Id] {
			continue // left to the scanners, whose work released checks
		}
		for e, err := range client.WalkColumn(ctx, mvcc.GroupLock,
			mvcc.ObservedColumn{Table: mvcc.TableID(t.Id)}) {
			if err != nil {
				return err
			}
			if _, err := client.ResolveLock(ctx,
				mvcc.LockInfo{Cell: wire.Cell(e.Cell), Lock: wire.Lock(e.Lock)}); err != nil {
				return err
			}
			c.logf("met a lock: table %q row %q: %v", t.Name, e.Cell.Row, e.Lock)
		}
	}
	return nil
}
