package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// This file has the transfer of the leadership. One that was requested (Transfer) is under way at a
// time, counted in transferTicks; raft gives it up after an election timeout. leaveFullNode
// transfers without a request, uncounted.

// transferLimit limits the wait for the new leader after a transfer, in ticks.
const transferLimit = 3 * ElectionTicks

// TransferTarget returns the voter with the most advanced log among those that sent a message
// recently, on the node if it is not 0; 0 means none. A replica that votes only in the new
// configuration may lead; one that is leaving (Outgoing) may not.
func (g *Group) TransferTarget(node uint64) (target uint64) {
	best := uint64(0)
	g.raft.WithProgress(func(id uint64, typ raft.ProgressType, p tracker.Progress) {
		r := Replica(g.descriptor, id)
		if id == g.cfg.Replica || r.GetLearner() || r.GetOutgoing() ||
			typ == raft.ProgressTypeLearner || (node != 0 && r.GetNodeId() != node) ||
			!g.active(id) || p.State != tracker.StateReplicate {
			return
		}
		if target == 0 || p.Match > best || (p.Match == best && id < target) {
			target, best = id, p.Match
		}
	})
	return target
}

// Transfer transfers the leadership. It ends when another leader is known, or when Tick reports
// that it has failed.
func (g *Group) Transfer(to uint64) {
	g.transferTicks = 1
	g.transfer(to)
	g.Wake()
}

// Transferring reports whether a transfer by Transfer is under way.
func (g *Group) Transferring() bool { return g.transferTicks > 0 }

// handOverFirst makes another replica leave the joint configuration if this one does not vote in
// the new one, so that there is always a leader. It reports whether a transfer is under way. After
// maxHandovers attempts, or without a voter that could lead, this replica leaves it itself.
func (g *Group) handOverFirst(c *Change) bool {
	if !Replica(g.descriptor, g.cfg.Replica).GetOutgoing() {
		return false
	}
	if g.Transferring() {
		return true
	}
	target := g.TransferTarget(0)
	if target == 0 || c.handovers >= maxHandovers {
		return false
	}
	c.handovers++
	g.Transfer(target)
	return true
}

// tickTransfer abandons a transfer that raft has abandoned, or that has left the group without a
// leader for too long.
func (g *Group) tickTransfer() (failed bool) {
	if !g.Transferring() {
		return false
	}
	g.transferTicks++
	if g.transferTicks <= transferLimit+1 &&
		(!g.elected || g.raft.BasicStatus().LeadTransferee != 0) {
		return false
	}
	g.transferTicks = 0
	return true
}

// leaveFullNode transfers the leadership to another voter while entries of this leader wait for
// space on its disk: nothing proposed here would be applied, and its reads wait. It tries the
// voters in turn, because each of them may lack space too.
func (g *Group) leaveFullNode() {
	if !g.elected || !g.cfg.Host.Full() || g.Transferring() ||
		g.raft.BasicStatus().LeadTransferee != 0 {
		return
	}
	replicas := g.descriptor.GetReplicas()
	for i := range replicas {
		r := replicas[(g.clock+uint64(i))%uint64(len(replicas))]
		if target := g.TransferTarget(r.GetNodeId()); target != 0 {
			g.transfer(target)
			return
		}
	}
}

// transfer starts raft's transfer. The lease is given up first and for the rest of the term, because
// the message that makes the other replica campaign may arrive at any time.
func (g *Group) transfer(to uint64) {
	g.lease.giveUp()
	g.raft.TransferLeader(to)
}
