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

// Transfer of a stopping node's leaderships. It owns no state: the router knows the leaders. The
// goroutine that closes the node waits here; up to transfersAtOnce transfers are in flight, each of
// which its group may refuse or leave unanswered.

// transferTimeout limits one call of transferAll, of which a drain makes two; oneTransferTimeout
// limits each transfer. transferRounds is the maximum number of attempts in one call.
const (
	transferTimeout    = 10 * time.Second
	oneTransferTimeout = 3 * time.Second
	transfersAtOnce    = 16
	transferRounds     = 3
)

// transferLeaderships announces by gossip that placement must move nothing more here, and transfers
// the node's leaderships.
func (n *Node) transferLeaderships(ctx context.Context) {
	// A start that failed early has no tablets; a single node has no other to transfer them to.
	if n.tablets == nil || n.peerNodes.Alone() || ctx.Err() != nil {
		return
	}
	publish(n.peerNodes.Members(), func(m *cluster.Member) { m.Draining = true })
	n.tablets.transferAll(ctx)
}

// transferAll transfers this node's leaderships to live voters, so that no client has to wait for an
// election when the node ends. Tablets whose leadership cannot be transferred elect a leader
// afterwards. It waits up to transferTimeout.
func (t *tablets) transferAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	// Failed transfers may succeed in the next round, and leaderships may have returned.
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
			t.cfg.Logger.Debug("cannot transfer a leadership", "error", err)
		}
	}
}

// transferable returns the tablets that this node leads and another voter could lead. Learners and
// voters being removed cannot lead, nor can a voter whose node has ended: a quiescent group would
// not notice that, and the transfer would time out.
func (t *tablets) transferable() []*pb.TabletDescriptor {
	return slices.DeleteFunc(t.router.LedHere(), func(d *pb.TabletDescriptor) bool {
		return !slices.ContainsFunc(d.Replicas, func(r *pb.Replica) bool {
			return r.NodeId != t.node && !r.Learner && !r.Outgoing && t.peerNodes.IsAlive(r.NodeId)
		})
	})
}

// transferOne transfers one tablet and records its new leader in the router, so that requests that
// still arrive here are redirected.
func (t *tablets) transferOne(ctx context.Context, id uint64) error {
	port := t.router.Port(id)
	if port == nil { // the replica has been removed in the meantime
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, oneTransferTimeout)
	defer cancel()
	leader, err := tablet.TransferTo(ctx, port, 0)
	if err == nil {
		recordLeader(t.router, id, t.node, leader)
	}
	return err
}

// recordLeader records in the router the leader of a tablet that self has transferred; 0 means
// unknown.
func recordLeader(r *route.Router, id, self, leader uint64) {
	if leader == self {
		return
	}
	r.ForgetLeader(id, self)
	if leader != 0 {
		r.HintLeader(id, leader)
	}
}
