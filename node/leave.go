package node

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Bounds of handing leaderships over: all of it, one of them, how many at once, and how
// often what is left is tried again.
const (
	leaveTimeout = 10 * time.Second
	leaveOne     = 3 * time.Second
	leaveAtOnce  = 16
	leaveRounds  = 3
)

// handOver has other voters lead what this node leads, so that nobody waits for an
// election when it ends. What cannot be handed over is elected anew after its end.
func (n *Node) handOver(ctx context.Context) {
	if n.peers == nil || n.host == nil || ctx.Err() != nil {
		return
	}
	n.sayDraining()
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	for range leaveRounds {
		left := n.led()
		if len(left) == 0 || ctx.Err() != nil {
			return
		}
		group := errgroup.Group{}
		group.SetLimit(leaveAtOnce)
		for _, d := range left {
			group.Go(func() error { return n.handOverOne(ctx, d) })
		}
		if err := group.Wait(); err != nil {
			n.cfg.Logger.Debug("a leadership could not be handed over", "error", err)
		}
	}
}

// led are the tablets that this node leads and another could.
func (n *Node) led() []*pb.TabletDescriptor {
	var out []*pb.TabletDescriptor
	for _, d := range n.router.LedHere() {
		voters := 0
		for _, r := range d.Replicas {
			if !r.Learner && !r.Outgoing {
				voters++
			}
		}
		if voters > 1 && n.router.Port(d.TabletId) != nil {
			out = append(out, d)
		}
	}
	return out
}

func (n *Node) handOverOne(ctx context.Context, d *pb.TabletDescriptor) error {
	port := n.router.Port(d.TabletId)
	if port == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveOne)
	defer cancel()
	leader, err := tablet.TransferAway(ctx, port)
	if err == nil && leader != n.identity.NodeID {
		n.router.Unled(d.TabletId, n.identity.NodeID)
		if leader != 0 {
			n.router.Led(d.TabletId, leader)
		}
	}
	return err
}
