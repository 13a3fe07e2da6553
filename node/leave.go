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

// handOver has others lead, and nothing more moved here: this node is about to end.
func (n *Node) handOver(ctx context.Context) {
	if n.tablets == nil || n.others.peers == nil || ctx.Err() != nil {
		return
	}
	publish(n.others.members, func(m *cluster.Member) { m.Draining = true })
	n.tablets.handOver(ctx)
}

// handOver has other voters lead what this node leads, so that nobody waits for an
// election when it ends. What cannot be handed over is elected anew after its end. It
// waits, on the goroutine of whoever closes the node.
func (t *tablets) handOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
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

// ledWithOthers are the tablets that this node leads and another could.
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

// noteLeader notes who leads a tablet after self was to hand it over; 0: it is not known.
func noteLeader(r *route.Router, id, self, leader uint64) {
	if leader == self {
		return
	}
	r.Unled(id, self)
	if leader != 0 {
		r.Led(id, leader)
	}
}
