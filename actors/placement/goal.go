package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// leaves: the node's replicas are to go elsewhere.
func (p *planner) leaves(node uint64) bool {
	n := p.nodes[node]
	return n != nil && !n.mayHold() // of a node without a record nothing is known
}

// width is how many voters the tablet ought to have. Nodes that are missing are no reason
// to give replicas up.
func (p *planner) width(voters int) int {
	return max(p.plan.Target, oddFloor(min(voters, p.s.Replicas)))
}

// places are the nodes that the tablet's voters are counted on: of two of which one is to
// go, that of the newer, for the move has been decided upon.
func (p *planner) places(s shape) []uint64 {
	if len(s.voters) == 2 && p.width(2) == 1 {
		return s.voters[1:]
	}
	return s.voters
}

// goal are the nodes of the voters that the tablet ought to have; short says why it is
// not as it ought to be.
func (p *planner) goal(t *Tablet, s shape, order *pb.MoveTabletRequest) (goal []uint64, short string) {
	from, to := uint64(0), uint64(0)
	if order != nil && !order.Leader {
		from, to = order.FromNode, order.ToNode
	}
	var leave []uint64
	for _, v := range s.voters {
		if p.leaves(v) || v == from {
			leave = append(leave, v)
		} else {
			goal = append(goal, v)
		}
	}
	width := p.width(len(s.voters))
	for len(goal) > width {
		drop := goal[0] // of two: a tablet of one voter has moved, and goes on doing so
		if len(goal) != 2 || drop == to {
			drop = p.worst(t, goal, to)
		}
		goal = without(goal, drop)
	}
	for len(goal) < width {
		n := p.best(t, s, goal, append(leave, from), to)
		if n == 0 {
			break
		}
		goal = append(goal, n)
	}
	if len(goal) < width {
		return p.makeDo(s, goal, leave, width)
	}
	return goal, ""
}

// makeDo keeps voters that ought to leave, for want of nodes in their place, and an odd number.
func (p *planner) makeDo(s shape, goal, leave []uint64, width int) ([]uint64, string) {
	short := fmt.Sprintf("it has %d voters that may stay and ought to have %d, and no other live node may hold a replica", len(goal), width)
	slices.SortStableFunc(leave, func(a, b uint64) int { return p.misery(a) - p.misery(b) })
	for _, n := range leave {
		if len(goal) == width {
			break
		}
		goal = append(goal, n)
		if p.nodes[n] != nil && p.nodes[n].State == pb.NodeState_NODE_STATE_DRAINING {
			p.plan.BlockedNodes[n] = short
		}
	}
	if len(goal)%2 == 0 { // no even number on purpose: it makes the quorum larger, and tolerates nothing more
		if extra := without(goal, s.voters...); len(extra) > 0 {
			goal = without(goal, extra[len(extra)-1])
		}
	}
	return goal, short
}

// misery orders nodes that ought to be left by how little their replicas are worth.
func (p *planner) misery(node uint64) int {
	switch n := p.nodes[node]; {
	case n == nil || n.Gone:
		return 2
	case !n.Alive:
		return 1
	default:
		return 0
	}
}

// best is the node that gets the next replica, none of those in but; 0: there is none.
// Learners that are there come first.
func (p *planner) best(t *Tablet, s shape, goal, but []uint64, ordered uint64) uint64 {
	if ordered != 0 && p.nodes[ordered].takes() && !slices.Contains(goal, ordered) && !slices.Contains(s.voters, ordered) {
		return ordered
	}
	pick := func(among []uint64) (node uint64) {
		var least change
		for _, n := range among {
			if !p.nodes[n].takes() || slices.Contains(goal, n) || slices.Contains(but, n) {
				continue
			}
			c := p.replicas.put(n, t.weight(), 1)
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

// worst is the voter that goes when there are too many; what was ordered stays, and who
// leads if nothing else counts.
func (p *planner) worst(t *Tablet, goal []uint64, ordered uint64) (node uint64) {
	var least change
	for _, n := range goal {
		if n == ordered {
			continue
		}
		c := p.replicas.put(n, t.weight(), -1)
		c.zones = -p.inZone(n, goal)
		if len(p.live(t, []uint64{n})) == 0 {
			c.zones -= maxReplicas * maxReplicas // it is of no use
		}
		if node == 0 || c.less(least) || !least.less(c) && node == t.leader() {
			node, least = n, c
		}
	}
	return node
}

// inZone is how many of the others are in the node's zone.
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

// purpose finds out what a fresh learner was made for that nothing calls for any more: if
// it had better be in a voter's place, it is to get there; if not, it goes. Moves that
// were begun together are looked at one after the other, as if those before had been
// made: at least one goes on.
func (p *planner) purpose(g *target) []uint64 {
	goal, least, found := g.goal, change{}, false
	for _, l := range g.fresh {
		if !p.nodes[l].takes() || g.order != nil && l == g.order.FromNode {
			continue
		}
		for _, v := range g.voters {
			if g.Meta && v == g.leader() {
				continue // that would move placement itself, and the oracle
			}
			if c := p.swap(g.Tablet, g.voters, v, l); c.goesOn() && (!found || c.less(least)) {
				least, found, goal = c, true, append(without(g.voters, v), l)
			}
		}
	}
	return goal
}

// swap is the change that a replica on another node in one voter's place makes.
func (p *planner) swap(t *Tablet, voters []uint64, from, to uint64) change {
	c := p.replicas.move(from, to, t.weight())
	stay := without(voters, from)
	c.zones = p.inZone(to, stay) - p.inZone(from, stay)
	return c
}
