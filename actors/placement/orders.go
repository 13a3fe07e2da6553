package placement

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Evaluation of operators' orders. It is part of the planner: pure, and used on the goroutine
// that calls Make.

// orderOf returns the operator's order for the tablet if it can make progress now, or nil.
// An order that is done, or cannot be carried out any more, is added to Plan.Ended.
func (p *planner) orderOf(t *Tablet) *pb.MoveTabletRequest {
	o := p.orders[t.D.TabletId]
	if o == nil {
		return nil
	}
	s := t.shape()
	from, to := slices.Contains(s.voters, o.FromNode), slices.Contains(s.voters, o.ToNode)
	possible := to
	switch {
	case o.Leader:
		possible = to && t.leader() != o.ToNode
	case from && to:
		// The old and the new node both vote while the only voter of a tablet is being replaced. If
		// a tablet should have more voters, the new node votes for another reason, and the order is
		// void.
		possible = len(s.voters) > p.width(len(s.voters))
	case to:
		// The new voter is in place; the order is done once the old learner is removed.
		enough := len(s.voters) >= p.width(len(s.voters))
		possible = slices.Contains(s.learners, o.FromNode) && enough
	case from:
		possible = p.nodes[o.ToNode].mayHold()
	}
	if !possible && !s.joint {
		p.end(o)
		return nil
	}
	if !o.Leader && !p.nodes[o.ToNode].accepts() && !slices.Contains(s.voters, o.ToNode) {
		p.block("tablet %d: node %d is not alive, or refuses writes: its disk is full, or inodes, "+
			"file descriptors or memory maps are short", t.D.TabletId, o.ToNode)
		return nil // the order stays: a later turn tries it again
	}
	return o
}

func (p *planner) end(o *pb.MoveTabletRequest) { p.plan.Ended = append(p.plan.Ended, o) }
