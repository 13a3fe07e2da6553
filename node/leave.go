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

// This file transfers what a node leads when it is about to end. It owns nothing: who
// leads is in the router. The goroutine that closes the node waits here; up to
// transfersAtOnce transfers are in flight, each of which its group may refuse or leave
// unanswered.

// transferTimeout bounds all transfers together, oneTransferTimeout each of them.
// transferRounds is how often those that failed are tried.
const (
	transferTimeout    = 10 * time.Second
	oneTransferTimeout = 3 * time.Second
	transfersAtOnce    = 16
	transferRounds     = 3
)

// transferLeaderships tells placement by gossip to move nothing more here, and transfers
// what the node leads.
func (n *Node) transferLeaderships(ctx context.Context) {
	// After a start that failed early there are no tablets yet; a node that is alone has
	// nobody to transfer them to.
	if n.tablets == nil || n.peerNodes.Alone() || ctx.Err() != nil {
		return
	}
	publish(n.peerNodes.Members(), func(m *cluster.Member) { m.Draining = true })
	n.tablets.transferAll(ctx)
}

// transferAll transfers what this node leads to live voters, so that nobody has to wait
// for an election when the node ends. Tablets whose leadership cannot be transferred
// elect a leader after that. It waits up to transferTimeout.
func (t *tablets) transferAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	// What failed may succeed in the next round, and leaderships may have come back.
	for range transferRounds {
		left := t.transferable()
		if len(left) == 0 || ctx.Err() != nil {
			return
		}
		group := errgroup.Group{}
		group.SetLimit(transfersAtOnce)
		for _, d := range left {
			group.Go(func() error { return t.transferOne(ctx, d.TabletId) })
		}
		if err := group.Wait(); err != nil {
			t.cfg.Logger.Debug("a leadership could not be transferred", "error", err)
		}
	}
}

// transferable returns the tablets that this node leads and another voter could lead. A
// learner could not, nor a voter on its way out, nor one whose node has ended: a group at
// rest does not notice that, and would be waited for in vain.
func (t *tablets) transferable() []*pb.TabletDescriptor {
	return slices.DeleteFunc(t.router.LedHere(), func(d *pb.TabletDescriptor) bool {
		return !slices.ContainsFunc(d.Replicas, func(r *pb.Replica) bool {
			return r.NodeId != t.node && !r.Learner && !r.Outgoing && t.peerNodes.IsAlive(r.NodeId)
		})
	})
}

// transferOne transfers one tablet and tells the router who leads it then, so that
// requests that still come here are sent on.
func (t *tablets) transferOne(ctx context.Context, id uint64) error {
	port := t.router.Port(id)
	if port == nil { // the replica has been removed meanwhile
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, oneTransferTimeout)
	defer cancel()
	leader, err := tablet.TransferAway(ctx, port)
	if err == nil {
		recordLeader(t.router, id, t.node, leader)
	}
	return err
}

// recordLeader tells the router who leads a tablet after self has transferred it; 0: not
// known.
func recordLeader(r *route.Router, id, self, leader uint64) {
	if leader == self {
		return
	}
	r.ForgetLeader(id, self)
	if leader != 0 {
		r.HintLeader(id, leader)
	}
}
