package node

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/route"
)

// A node that ends hands over what it leads. This file owns nothing: who leads is in the
// router. The goroutine that closes the node waits here; up to leaveAtOnce transfers are
// in flight, each of which its group may refuse or leave unanswered.

// Bounds of handing leaderships over: all of it, one of them, how many at once, and how
// often what is left is tried again.
const (
	leaveTimeout = 10 * time.Second
	leaveOne     = 3 * time.Second
	leaveAtOnce  = 16
	leaveRounds  = 3
)

// handOver makes others lead, and tells placement by gossip to move nothing more here:
// this node is about to end.
func (n *Node) handOver(ctx context.Context) {
	if n.tablets == nil || n.others.peers == nil || ctx.Err() != nil {
		return
	}
	publish(n.others.members, func(m *cluster.Member) { m.Draining = true })
	n.tablets.handOver(ctx)
}

// handOver transfers what this node leads to other voters, so that nobody has to wait for
// an election when it ends. What cannot be transferred elects a new leader after that. It
// waits up to leaveTimeout.
func (t *tablets) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	// What failed may succeed in the next round, and leaderships may have come back.
	for range leaveRounds {
		left := t.ledWithOthers()
		if len(left) == 0 || ctx.Err() != nil {
			return
		}
		group := errgroup.Group{}
		group.SetLimit(leaveAtOnce)
		for _, d := range left {
			group.Go(func() error { return t.handOverOne(ctx, d.TabletId) })
		}
		if err := group.Wait(); err != nil {
			t.cfg.Logger.Debug("a leadership could not be handed over", "error", err)
		}
	}
}

// ledWithOthers returns the tablets that this node leads and another voter could lead. A
// learner, or a voter on its way out, could not.
func (t *tablets) ledWithOthers() []*pb.TabletDescriptor {
	return slices.DeleteFunc(t.router.LedHere(), func(d *pb.TabletDescriptor) bool {
		voters := 0
		for _, r := range d.Replicas {
			if !r.Learner && !r.Outgoing {
				voters++
			}
		}
		return voters < 2 || t.router.Port(d.TabletId) == nil
	})
}

// handOverOne transfers one tablet and tells the router who leads it then, so that
// requests that still come here are sent on.
func (t *tablets) handOverOne(ctx context.Context, id uint64) error {
	port := t.router.Port(id)
	if port == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveOne)
	defer cancel()
	leader, err := tablet.TransferAway(ctx, port)
	if err == nil {
		noteLeader(t.router, id, t.node, leader)
	}
	return err
}

// noteLeader tells the router who leads a tablet after self has transferred it; 0: not
// known.
func noteLeader(r *route.Router, id, self, leader uint64) {
	if leader == self {
		return
	}
	r.Unled(id, self)
	if leader != 0 {
		r.Led(id, leader)
	}
}
