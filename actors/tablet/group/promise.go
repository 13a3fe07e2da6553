package group

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// promise is what binds a replica as a follower: the support under which it has acknowledged a
// leader's messages. While that support may hold, the replica takes part in no election
// (docs/adr/0060). Without Leases it is never bound.
type promise struct {
	leases Leases // nil: none
	tablet uint64
	to     support // the same as Leases.Fortified; zero: none
}

func newPromise(leases Leases, tablet uint64) promise {
	p := promise{leases: leases, tablet: tablet}
	if leases != nil {
		p.to.node, p.to.epoch = leases.Fortified(tablet)
	}
	return p
}

// fortify returns the epoch to send with an acknowledgment to the leader on the node; 0 means none.
// From then on the replica is barred while the promises under that epoch hold. Without an epoch it
// stays bound only by an earlier promise to this node.
func (p *promise) fortify(node uint64) (epoch uint64) {
	switch epoch = p.leases.Supported(node); {
	case epoch != 0:
		p.set(support{node, epoch})
	case p.to.node != node:
		p.set(support{})
	}
	return epoch
}

// set replaces the support; a zero one ends the promise.
func (p *promise) set(to support) {
	if p.to != to {
		p.to = to
		p.leases.Fortify(p.tablet, to.node, to.epoch)
	}
}

// barred reports whether a lease may exist that this replica's part in an election would break. If
// not, it withdraws the support on which such a lease could rest.
func (p *promise) barred() bool {
	switch {
	case p.leases == nil:
		return false
	case p.leases.Waiting():
		return true
	case p.to == support{}:
		return false
	case !p.leases.Withdraw(p.to.node, p.to.epoch):
		return true
	}
	p.set(support{})
	return false
}

// campaignTransfer is the context with which raft marks the election of a transfer.
var campaignTransfer = []byte("CampaignTransfer")

// barsVote reports whether the message asks for a vote that this replica must not give. Raft must
// not see it, because it would begin another term. A candidate on the fortified node may have the
// vote, unless Leases.Waiting: it has ceased to lead.
func (p *promise) barsVote(in *Incoming) bool {
	switch in.Raft.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
	default:
		return false
	}
	if slices.Equal(in.Raft.GetContext(), campaignTransfer) {
		return false
	}
	if p.leases != nil && p.to.node == in.FromNode && !p.leases.Waiting() {
		return false
	}
	return p.barred()
}

// refuse ends the support of the node of a leader that sends nothing: the node is believed dead, or
// only the replica has failed or been removed. That may also end, within liveness.Duration, the
// leases that the node holds by this one's promises in other tablets, until the acknowledgments of
// this node's replicas there carry a new epoch; reads ask a quorum meanwhile. It cannot be narrowed
// to this tablet: the silent replica's lease, if it holds one, rests on the same promise, which only
// the node that received it could divide, and this replica must vote for another leader although
// that node may be unreachable.
func (p *promise) refuse() {
	if p.to != (support{}) {
		p.leases.Refuse(p.to.node, p.to.epoch)
	}
}
