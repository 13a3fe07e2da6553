package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// toward plans the next of the steps that lead from the tablet's replicas to the goal.
func (p *planner) toward(g *target) {
	surplus := slices.DeleteFunc(without(g.learners, g.goal...), func(n uint64) bool {
		return len(g.goal) < p.width(len(g.voters)) && !p.leaves(n) // it will be wanted
	})
	add := without(without(g.goal, g.voters...), g.learners...)
	promote, demote := both(g.goal, g.learners), without(g.voters, g.goal...)
	switch {
	case len(surplus) > 0:
		p.change(g, pb.ReplicaChange_KIND_REMOVE, surplus, "no voter, and not to become one")
	case len(add) > 0:
		p.addLearners(g, add)
	case len(promote) > 0 || len(demote) > 0:
		p.exchange(g, promote, demote)
	}
}

// addLearners makes new replicas, as far as the bounds allow.
func (p *planner) addLearners(g *target, nodes []uint64) {
	nodes = slices.DeleteFunc(nodes, func(n uint64) bool { return p.incoming[n] >= p.s.MaxIncoming })
	begins := len(g.learners) == 0
	if len(nodes) == 0 || begins && p.plan.Changing >= p.s.MaxChanging {
		p.late = true
		return
	}
	for _, n := range nodes {
		p.incoming[n]++
	}
	if begins {
		p.plan.Changing++
	}
	p.change(g, pb.ReplicaChange_KIND_ADD_LEARNER, nodes, "a new replica")
}

// exchange makes learners that have caught up voters, and voters learners: as many of
// both as are ready.
func (p *planner) exchange(g *target, promote, demote []uint64) {
	ready := slices.DeleteFunc(slices.Clone(promote), func(n uint64) bool { return !g.caughtUp(n) || !p.nodes[n].Alive })
	switch late := without(promote, ready...); {
	case len(late) == 0:
	case len(ready) == 0 || len(demote) == 0:
		p.block("tablet %d: the replica on node %d has not caught up", g.D.TabletId, late[0])
		return
	default: // those that are ready, each for one that goes, the most useless first
		slices.SortStableFunc(demote, func(a, b uint64) int { return p.misery(b) - p.misery(a) })
		n := min(len(ready), len(demote))
		ready, demote = ready[:n], demote[:n]
	}
	if slices.Contains(demote, g.leader()) {
		if to := p.successor(g); to != 0 {
			p.transfer(g.Tablet, to, g.order != nil, "the leader's replica is to go")
			return
		}
		demote = without(demote, g.leader()) // the one voter: its successor has to vote first
	}
	if len(ready) == 0 && len(demote) == 0 {
		p.block("tablet %d: there is nobody to lead in the place of node %d%s", g.D.TabletId, g.leader(), p.clocks(g))
		return
	}
	after := append(without(g.voters, demote...), ready...)
	for _, voters := range [][]uint64{g.voters, after} { // a joint change takes a quorum of both
		if live := len(p.live(g.Tablet, voters)); live <= len(voters)/2 {
			p.block("tablet %d: only %d of the %d voters on nodes %v are live", g.D.TabletId, live, len(voters), voters)
			return
		}
	}
	list := append(changes(pb.ReplicaChange_KIND_PROMOTE, ready), changes(pb.ReplicaChange_KIND_DEMOTE, demote)...)
	p.step(g.Tablet, Step{Changes: list, Ordered: g.order != nil, Why: "the new replica has caught up"})
}

// mayLead: the node's clock is no reason against it. Meta's leader gives the timestamps,
// and one whose clock is too far ahead hands meta on to another.
func (p *planner) mayLead(t *Tablet, node uint64) bool {
	n := p.nodes[node]
	return !t.Meta || n == nil || !n.Ahead
}

// clocks says of which nodes the clocks are in the way of leading the tablet.
func (p *planner) clocks(g *target) string {
	ahead := slices.DeleteFunc(slices.Clone(g.voters), func(n uint64) bool { return p.mayLead(g.Tablet, n) })
	if len(ahead) == 0 {
		return ""
	}
	return fmt.Sprintf("; the clocks of nodes %v are too far ahead of the others': set them", ahead)
}

// full: the node's disk has too little room for the writes of what it leads.
func (p *planner) full(node uint64) bool {
	n := p.nodes[node]
	return n != nil && n.Full
}

// successor is the voter that had best lead next: a live one that stays, or else one that
// does not drain, with room on its disk if there is one; 0: there is none.
func (p *planner) successor(g *target) (node uint64) {
	stay, others := both(g.goal, g.voters), without(g.voters, p.draining(g.voters)...)
	for _, among := range [][]uint64{slices.DeleteFunc(slices.Clone(stay), p.full), slices.DeleteFunc(slices.Clone(others), p.full), stay, others} {
		var least change
		for _, n := range p.live(g.Tablet, without(among, g.leader())) {
			if c := p.leaders.put(n, g.leading(), 1); g.caughtUp(n) && p.mayLead(g.Tablet, n) && (node == 0 || c.less(least)) {
				node, least = n, c
			}
		}
		if node != 0 {
			return node
		}
	}
	return 0
}

func (p *planner) draining(nodes []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(nodes), func(n uint64) bool { return !p.leaves(n) })
}

// leaderAway moves the leader if its node drains or has a full disk, or if that is ordered.
func (p *planner) leaderAway(g *target) bool {
	if order := g.order; order != nil && order.Leader {
		if !p.mayLead(g.Tablet, order.ToNode) {
			p.block("tablet %d: node %d can't lead it%s", g.D.TabletId, order.ToNode, p.clocks(g))
			return false
		}
		if p.full(order.ToNode) {
			p.block("tablet %d: node %d can't lead it: its disk is full", g.D.TabletId, order.ToNode)
			return false
		}
		if !g.caughtUp(order.ToNode) || len(p.live(g.Tablet, []uint64{order.ToNode})) == 0 {
			p.block("tablet %d: node %d can't lead it now", g.D.TabletId, order.ToNode)
			return false
		}
		p.transfer(g.Tablet, order.ToNode, true, "ordered")
		return true
	}
	drains, full := p.leaves(g.leader()), p.full(g.leader())
	if g.leader() == 0 || !drains && !full {
		return false
	}
	to := p.successor(g)
	switch {
	case to == 0 || p.leaves(to):
	case drains:
		p.transfer(g.Tablet, to, false, fmt.Sprintf("node %d drains", g.leader()))
		return true
	case !p.full(to):
		p.transfer(g.Tablet, to, false, fmt.Sprintf("the disk of node %d is full", g.leader()))
		return true
	}
	if !drains {
		return false
	}
	if why := p.clocks(g); why != "" {
		p.plan.BlockedNodes[g.leader()] = fmt.Sprintf("it leads tablet %d, and nobody may lead in its place%s", g.D.TabletId, why)
	}
	return false
}
