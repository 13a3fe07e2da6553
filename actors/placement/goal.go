package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file finds each tablet's goal: the nodes on which it ought to have voters. It is
// part of the planner: pure, and used on the goroutine that calls Make.

// mustLeave reports whether the node's replicas must be moved elsewhere. Replicas stay on a node
// without a record, about which nothing is known.
func (p *planner) mustLeave(node uint64) bool {
	n := p.nodes[node]
	return n != nil && !n.mayHold()
}

// width returns the number of voters that a tablet should have which has the given number now: the
// larger of Plan.Target and, so that it keeps its replicas when nodes are missing, the largest odd
// number up to voters and State.Replicas.
func (p *planner) width(voters int) int {
	return max(p.plan.Target, oddFloor(min(voters, p.s.Replicas)))
}

// countedVoters returns the nodes whose tallies include the tablet. If it has two voters
// and ought to have one, a move is half done, and only the newer voter counts.
func (p *planner) countedVoters(s shape) []uint64 {
	if len(s.voters) == 2 && p.width(2) == 1 {
		return s.voters[1:]
	}
	return s.voters
}

// goal returns the nodes on which the tablet ought to have voters. If too few nodes can hold them,
// short states the reason and the goal is the best possible one.
func (p *planner) goal(t *Tablet, s shape,
	order *pb.MoveTabletRequest) (goal []uint64, short string) {
	from, to := uint64(0), uint64(0)
	if order != nil && !order.Leader {
		from, to = order.FromNode, order.ToNode
	}
	var leave []uint64
	for _, v := range s.voters {
		if p.mustLeave(v) || v == from {
			leave = append(leave, v)
		} else {
			goal = append(goal, v)
		}
	}
	width := p.width(len(s.voters))
	for len(goal) > width {
		drop := goal[0] // the older of two: a tablet with one voter is being moved
		if len(goal) != 2 || drop == to {
			drop = p.worstVoter(t, goal, to)
		}
		goal = without(goal, drop)
	}
	for len(goal) < width {
		n := p.bestNode(t, s, goal, append(leave, from), to)
		if n == 0 {
			break
		}
		goal = append(goal, n)
	}
	if len(goal) < width {
		return p.keepLeavingVoters(s, goal, leave, width)
	}
	return goal, ""
}

// keepLeavingVoters fills the goal with voters that ought to leave, because there are no
// nodes to replace them. It leaves out a new node if that makes the number of voters odd, and
// reports draining nodes that are kept as blocked.
func (p *planner) keepLeavingVoters(s shape, goal, leave []uint64, width int) ([]uint64, string) {
	short := fmt.Sprintf("it has %d voters that may stay and ought to have %d, "+
		"and no other node can take a replica now", len(goal), width)
	slices.SortStableFunc(leave, func(a, b uint64) int {
		return p.removalPriority(a) - p.removalPriority(b)
	})
	for _, n := range leave {
		if len(goal) == width {
			break
		}
		goal = append(goal, n)
		if p.nodes[n] != nil && p.nodes[n].State == pb.NodeState_NODE_STATE_DRAINING {
			p.plan.BlockedNodes[n] = short
		}
	}
	// An even number of voters has a larger quorum and tolerates no more failures.
	if len(goal)%2 == 0 {
		if extra := without(goal, s.voters...); len(extra) > 0 {
			goal = without(goal, extra[len(extra)-1])
		}
	}
	return goal, short
}

// removalPriority orders the nodes to leave: replicas on nodes of a higher priority are removed
// first.
func (p *planner) removalPriority(node uint64) int {
	switch n := p.nodes[node]; {
	case n == nil || n.Gone:
		return 2
	case !n.Alive:
		return 1
	default:
		return 0
	}
}

// bestNode returns the node that gets the tablet's next voter, or 0 if there is none. It
// prefers the node that an operator ordered, then nodes that have a learner already, then
// the one that keeps zones apart and the cluster even. It never returns a node in exclude.
func (p *planner) bestNode(t *Tablet, s shape, goal, exclude []uint64, ordered uint64) uint64 {
	taken := slices.Contains(goal, ordered) || slices.Contains(s.voters, ordered)
	if ordered != 0 && p.nodes[ordered].accepts() && !taken {
		return ordered
	}
	pick := func(among []uint64) (node uint64) {
		var least change
		for _, n := range among {
			if !p.nodes[n].accepts() || slices.Contains(goal, n) || slices.Contains(exclude, n) {
				continue
			}
			c := p.replicas.delta(n, t.weight(), 1)
			c.zones = p.inZone(n, goal)
			if node == 0 || c.less(least) {
				node, least = n, c
			}
		}
		return node
	}
	if n := pick(s.learners); n != 0 {
		return n
	}
	all := make([]uint64, len(p.s.Nodes))
	for i, n := range p.s.Nodes {
		all[i] = n.ID
	}
	return pick(all)
}

// worstVoter returns the voter to remove when there are too many. It spares the node that
// an operator ordered, and the leader when all else is equal.
func (p *planner) worstVoter(t *Tablet, goal []uint64, ordered uint64) (node uint64) {
	var least change
	for _, n := range goal {
		if n == ordered {
			continue
		}
		c := p.replicas.delta(n, t.weight(), -1)
		c.zones = -p.inZone(n, goal)
		if len(p.live(t, []uint64{n})) == 0 {
			c.zones -= maxReplicas * maxReplicas // a dead voter is removed first, whatever its zone
		}
		if node == 0 || c.less(least) || !least.less(c) && node == t.leader() {
			node, least = n, c
		}
	}
	return node
}

// inZone returns the number of the other nodes in the node's zone.
func (p *planner) inZone(node uint64, others []uint64) (n int) {
	for _, o := range others {
		if o != node && p.zone(o) == p.zone(node) {
			n++
		}
	}
	return n
}

func (p *planner) zone(node uint64) string {
	if n := p.nodes[node]; n != nil {
		return n.Zone
	}
	return ""
}

// balanceGoal returns the goal of a tablet with a fresh learner that no repair asks for,
// hence one that was added to move a voter for balance. If replacing some voter by the
// learner still improves the cluster, the goal includes that replacement; otherwise it
// omits the learner, which is then removed. Tablets are considered one after the other,
// each with the earlier ones' goals in the tallies, so of several moves that were begun
// together at least one continues.
func (p *planner) balanceGoal(g *target) []uint64 {
	goal, least, found := g.goal, change{}, false
	for _, l := range g.fresh {
		if !p.nodes[l].accepts() || g.order != nil && l == g.order.FromNode {
			continue
		}
		for _, v := range g.voters {
			if g.Meta && v == g.leader() {
				continue // moving meta's leader would move placement itself, and the oracle
			}
			c := p.swapDelta(g.Tablet, g.voters, v, l)
			if c.improves() && (!found || c.less(least)) {
				least, found, goal = c, true, append(without(g.voters, v), l)
			}
		}
	}
	return goal
}

// swapDelta returns the effect of replacing the voter on from by one on to.
func (p *planner) swapDelta(t *Tablet, voters []uint64, from, to uint64) change {
	c := p.replicas.moveDelta(from, to, t.weight())
	stay := without(voters, from)
	c.zones = p.inZone(to, stay) - p.inZone(from, stay)
	return c
}
