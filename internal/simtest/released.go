package simtest

import (
	"context"
	"fmt"
	"time"
)

// releasePatience is how long after the load's end a lock or a reservation may be in a leader's memory: all of them have
// been released by then, or have expired and been resolved by those who walk the locks.
const releasePatience = time.Minute

// released waits until every tablet's leader has been seen without a lock in its memory: one that stays has no transaction
// that could end it, and stops everybody at its cell.
func (c *Cluster) released(ctx context.Context) error {
	left := map[uint64]uint64{} // by tablet
	for _, d := range c.descriptors(ctx) {
		left[d.TabletId] = 0
	}
	for began := time.Now(); len(left) > 0; {
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
			return fmt.Errorf("the leader of tablet %d keeps %d locks that nobody holds", id, n)
		}
	}
	return nil
}
