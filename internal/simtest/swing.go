package simtest

import (
	"context"
	"slices"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// Limits of Swing, March and Hesitate.
const (
	swingRumour = 100 * time.Millisecond
	swingPause  = 250 * time.Millisecond
	swingLate   = 900 * time.Millisecond // below the timeout of requests to the oracle
	hesitation  = 3 * time.Second
	marchPause  = 50 * time.Millisecond
	marchWait   = 2 * time.Second // for a replica to be moved
)

// swing moves a tablet's leadership from node to node and back.
func (c *Cluster) swing(ctx context.Context, e Event) {
	first, _ := c.leader(ctx, e.A)
	if first == nil {
		return
	}
	c.network.set(func(n *network) { n.late[first.index] = time.Duration(1+e.B%3) * swingLate / 3 })
	defer c.network.set(func(n *network) { delete(n.late, first.index) })
	for began := time.Now(); time.Since(began) < e.For; {
		if m, _ := c.leader(ctx, e.A); m != nil {
			c.gossip.rumour(m.index, time.Now().Add(swingRumour))
		}
		if !sleep(ctx, swingPause) {
			return
		}
	}
}

// march repeatedly moves a tablet's replica to a node without one and makes that node the leader.
func (c *Cluster) march(ctx context.Context, e Event) {
	ctx, cancel := context.WithTimeout(ctx, e.For+adminPatience)
	defer cancel()
	for began := time.Now(); time.Since(began) < e.For && sleep(ctx, marchPause); {
		m, tablet := c.leader(ctx, e.A)
		if m == nil || m.up() == nil || tablet.TabletId == cluster.MetaTablet {
			continue
		}
		from, to := c.marchers(m, tablet)
		if from == 0 || to == 0 {
			continue
		}
		through := m.up().admin()
		if _, err := through.MoveTablet(ctx,
			&pb.MoveTabletRequest{
				TabletId: tablet.TabletId, FromNode: from, ToNode: to,
			}); err != nil {
			continue
		}
		c.sees(ctx, e.A, func(_ *machine, d *pb.TabletDescriptor) bool {
			return votes(d, to) && len(d.Replicas) == len(tablet.Replicas)
		})
		lead := &pb.MoveTabletRequest{TabletId: tablet.TabletId, ToNode: to, Leader: true}
		// MoveTablet is refused until placement has completed the move of the replica
		c.sees(ctx, e.A, func(m *machine, d *pb.TabletDescriptor) bool {
			if !m.is(to) && votes(d, to) {
				_, _ = through.MoveTablet(ctx, lead)
			}
			return m.is(to) || !votes(d, to)
		})
	}
}

// marchers returns a node with a replica of the tablet that does not lead it, and one without; 0
// means none.
func (c *Cluster) marchers(leader *machine, tablet *pb.TabletDescriptor) (from, to uint64) {
	for _, m := range c.list() {
		l := m.up()
		if l == nil || m == leader {
			continue
		}
		id := l.transport.Worker().Node
		if slices.ContainsFunc(tablet.Replicas, func(r *pb.Replica) bool {
			return r.NodeId == id
		}) {
			from = id
		} else if to == 0 {
			to = id
		}
	}
	return from, to
}

// sees waits until good returns true for the n-th tablet and its leader, at most marchWait.
func (c *Cluster) sees(ctx context.Context, n int,
	good func(leader *machine, tablet *pb.TabletDescriptor) bool) {
	for began := time.Now(); time.Since(began) < marchWait && sleep(ctx, marchPause); {
		if m, tablet := c.leader(ctx, n); m != nil && good(m, tablet) {
			return
		}
	}
}

// votes reports whether the node has a voter of the tablet.
func votes(tablet *pb.TabletDescriptor, node uint64) bool {
	return slices.ContainsFunc(tablet.Replicas, func(r *pb.Replica) bool {
		return r.NodeId == node && !r.Learner && !r.Incoming
	})
}

// is reports whether the machine runs the node.
func (m *machine) is(node uint64) bool {
	l := m.up()
	return l != nil && l.transport.Worker().Node == node
}

// hesitate delays half of the commits while clients hesitate. Heartbeats continue, so the
// transactions stay alive.
func (t *Client) hesitate(ctx context.Context) error {
	t.c.network.mu.Lock()
	wavers := time.Now().Before(t.c.network.wavers)
	t.c.network.mu.Unlock()
	if !wavers || t.chance(0.5) {
		return nil
	}
	t.mu.Lock()
	d := time.Duration(t.rng.Int64N(int64(hesitation)))
	t.mu.Unlock()
	if !sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}
