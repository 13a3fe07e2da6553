package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file plans the single next step from a tablet's replicas, or its leader, to its
// goal. It is part of the planner: pure, and used on the goroutine that calls Make.

// planReplicaStep plans the next step from the tablet's replicas to its goal. In order: unneeded
// learners are removed, missing replicas are added as learners, and learners that have caught up
// replace voters.
func (p *planner) planReplicaStep(g *target) {
	surplus := slices.DeleteFunc(without(g.learners, g.goal...), func(n uint64) bool {
		// Keep a learner that a goal short of voters can use later.
		return len(g.goal) < p.width(len(g.voters)) && !p.mustLeave(n)
	})
	add := without(without(g.goal, g.voters...), g.learners...)
	promote, demote := both(g.goal, g.learners), without(g.voters, g.goal...)
	switch {
	case len(surplus) > 0:
		p.change(g, pb.ReplicaChange_KIND_REMOVE, surplus, "no voter, and not to become one")
	case len(add) > 0:
		p.addLearners(g, add)
	case len(promote) > 0 || len(demote) > 0:
		p.swapVoters(g, promote, demote)
	}
}

// maxRepairing is the number of tablets with a learner at which no further repair begins. It grows
// with the nodes, so that a node copies as much at once in a large cluster as in one of 16.
func (p *planner) maxRepairing() int { return max(maxChanging, len(p.nodes)/2) }

// addLearners plans new learners on the nodes, as far as maxIncoming and maxRepairing allow. If
// they allow none, no replica is moved for balance: repairs come first.
func (p *planner) addLearners(g *target, nodes []uint64) {
	nodes = slices.DeleteFunc(nodes, func(n uint64) bool {
		return p.incoming[n] >= maxIncoming
	})
	begins := len(g.learners) == 0
	if len(nodes) == 0 || begins && p.plan.Changing >= p.maxRepairing() {
		p.deferred = true
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

// swapVoters plans one joint change that promotes learners which have caught up and demotes voters.
// While some learners lag it swaps as many as are ready, each for the least valuable voter. If the
// leader is to be demoted, leadership is transferred first. The change is planned only if a quorum
// of the old and of the new voters is live.
func (p *planner) swapVoters(g *target, promote, demote []uint64) {
	ready := slices.DeleteFunc(slices.Clone(promote), func(n uint64) bool {
		return !g.caughtUp(n) || !p.nodes[n].Alive
	})
	switch late := without(promote, ready...); {
	case len(late) == 0:
	case len(ready) == 0 || len(demote) == 0:
		p.block("tablet %d: the replica on node %d has not caught up", g.D.TabletId, late[0])
		return
	default:
		slices.SortStableFunc(demote, func(a, b uint64) int {
			return p.removalPriority(b) - p.removalPriority(a)
		})
		n := min(len(ready), len(demote))
		ready, demote = ready[:n], demote[:n]
	}
	if slices.Contains(demote, g.leader()) {
		if to := p.successor(g); to != 0 {
			p.transfer(g.Tablet, to, g.order != nil, "the leader's replica is to go")
			return
		}
		demote = without(demote, g.leader()) // the leader stays until another voter can lead
	}
	if len(ready) == 0 && len(demote) == 0 {
		p.block("tablet %d: no other node can lead in place of node %d%s",
			g.D.TabletId, g.leader(), p.clocks(g))
		return
	}
	after := append(without(g.voters, demote...), ready...)
	for _, voters := range [][]uint64{g.voters, after} { // a joint change needs a quorum of both
		if live := len(p.live(g.Tablet, voters)); live <= len(voters)/2 {
			p.block("tablet %d: only %d of the %d voters on nodes %v are live",
				g.D.TabletId, live, len(voters), voters)
			return
		}
	}
	if len(g.learners) == 0 {
		p.plan.Changing++
	}
	list := changes(pb.ReplicaChange_KIND_PROMOTE, ready)
	list = append(list, changes(pb.ReplicaChange_KIND_DEMOTE, demote)...)
	p.addStep(g.Tablet, Step{
		Changes: list, Ordered: g.order != nil, Why: "the new replica has caught up",
	})
}

// mayLead reports whether the node's clock allows it to lead the tablet. Only meta is
// restricted: its leader issues timestamps, and gives leadership away if its clock is too
// far ahead.
func (p *planner) mayLead(t *Tablet, node uint64) bool {
	n := p.nodes[node]
	return !t.Meta || n == nil || !n.Ahead
}

// clocks returns a phrase, to be appended to a reason, that names the voters whose clocks
// keep them from leading the tablet. It is empty if there are none.
func (p *planner) clocks(g *target) string {
	ahead := slices.DeleteFunc(slices.Clone(g.voters), func(n uint64) bool {
		return p.mayLead(g.Tablet, n)
	})
	if len(ahead) == 0 {
		return ""
	}
	return fmt.Sprintf("; the clocks of nodes %v are too far ahead of the others': set them", ahead)
}

// diskFull reports whether the node lacks disk space, or another resource for files, to lead.
func (p *planner) diskFull(node uint64) bool {
	n := p.nodes[node]
	return n != nil && n.Full
}

// successor returns the voter that should lead next, or 0 if none can. It prefers voters
// with room on their disks to those without, voters that stay to those that will be
// demoted but do not drain, and among equals the one that leads least.
func (p *planner) successor(g *target) (node uint64) {
	stay, others := both(g.goal, g.voters), without(g.voters, p.draining(g.voters)...)
	withRoom := func(nodes []uint64) []uint64 {
		return slices.DeleteFunc(slices.Clone(nodes), p.diskFull)
	}
	for _, among := range [][]uint64{withRoom(stay), withRoom(others), stay, others} {
		var least change
		for _, n := range p.live(g.Tablet, without(among, g.leader())) {
			if !g.caughtUp(n) || !p.mayLead(g.Tablet, n) {
				continue
			}
			if c := p.leaders.delta(n, g.leading(), 1); node == 0 || c.less(least) {
				node, least = n, c
			}
		}
		if node != 0 {
			return node
		}
	}
	return 0
}

// draining returns those of the nodes whose replicas must be moved elsewhere.
func (p *planner) draining(nodes []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(nodes), func(n uint64) bool { return !p.mustLeave(n) })
}

// moveLeaderAway plans a transfer of leadership if an operator ordered one, or if the
// leader's node drains or has a full disk. It reports whether it has planned one. If an ordered
// one is impossible, or a draining node stays because of the other voters' clocks, it records why.
func (p *planner) moveLeaderAway(g *target) bool {
	if order := g.order; order != nil && order.Leader {
		if !p.mayLead(g.Tablet, order.ToNode) {
			p.block("tablet %d: node %d cannot lead it%s", g.D.TabletId, order.ToNode, p.clocks(g))
			return false
		}
		if p.diskFull(order.ToNode) {
			p.block("tablet %d: node %d cannot lead it: its disk is full, or inodes, file "+
				"descriptors or memory maps are short", g.D.TabletId,
				order.ToNode)
			return false
		}
		if !g.caughtUp(order.ToNode) || len(p.live(g.Tablet, []uint64{order.ToNode})) == 0 {
			p.block("tablet %d: node %d cannot lead it now: it is not alive or has not caught up",
				g.D.TabletId, order.ToNode)
			return false
		}
		p.transfer(g.Tablet, order.ToNode, true, "ordered")
		return true
	}
	drains, full := p.mustLeave(g.leader()), p.diskFull(g.leader())
	if g.leader() == 0 || !drains && !full {
		return false
	}
	to := p.successor(g)
	switch {
	case to == 0 || p.mustLeave(to):
	case drains:
		p.transfer(g.Tablet, to, false, fmt.Sprintf("node %d drains", g.leader()))
		return true
	case !p.diskFull(to):
		p.transfer(g.Tablet, to, false, fmt.Sprintf("the disk of node %d is full", g.leader()))
		return true
	}
	if !drains {
		return false
	}
	if why := p.clocks(g); why != "" {
		p.plan.BlockedNodes[g.leader()] = fmt.Sprintf(
			"it leads tablet %d, and no other node can lead in its place%s", g.D.TabletId, why)
	}
	return false
}
