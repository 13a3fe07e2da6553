package placement

import (
	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Removal of stale replicas, whose log lacks entries that they have acknowledged, so that they
// take no part in their groups (package group). It is part of the planner: pure, and used on the
// goroutine that calls Make.

// discardStale plans the next step of removing the replicas that the tablet's leader reports as
// stale: it removes learners or, if a quorum of the voters before and after is live, demotes one
// voter. It reports whether any replica is stale. The replacement is planned as any other, on the
// same node if no other is better. The removal does not wait for it: a voter that never votes does
// not help, and without it no more votes are needed than with it.
func (p *planner) discardStale(g *target) bool {
	var stale []uint64
	for _, r := range g.Status.GetReplicas() {
		if r.GetStale() {
			stale = append(stale, r.GetReplica().GetNodeId())
		}
	}
	const why = "its log lacks what it has acknowledged"
	if learners := both(g.learners, stale); len(learners) > 0 {
		p.change(g, pb.ReplicaChange_KIND_REMOVE, learners, why)
		return true
	}
	voters := both(g.voters, stale)
	if len(voters) == 0 {
		return false
	}
	drop := voters[:1] // one voter in each turn, as a change of its own
	for _, deciding := range [][]uint64{g.voters, without(g.voters, drop...)} {
		if live := p.live(g.Tablet, deciding); len(live) <= len(deciding)/2 {
			p.block("tablet %d: the replica on node %d is stale, and only %d of the voters on nodes %v are live",
				g.D.TabletId, drop[0], len(live), deciding)
			return true
		}
	}
	if len(g.learners) == 0 { // maxChanging does not apply: a stale voter casts no votes
		p.plan.Changing++
	}
	p.change(g, pb.ReplicaChange_KIND_DEMOTE, drop, why)
	return true
}
