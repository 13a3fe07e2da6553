package placement

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// orderOf is the operator's order for the tablet, if there is something left to do; one
// that is done, or can't be carried out any more, is ended.
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
	case from && to: // the only voter and its successor; else the new place is taken, and not by this order
		possible = len(s.voters) > p.width(len(s.voters))
	case to: // what is left of the old replica is to go, unless it is needed
		possible = slices.Contains(s.learners, o.FromNode) && len(s.voters) >= p.width(len(s.voters))
	case from:
		possible = p.nodes[o.ToNode].mayHold()
	}
	if !possible && !s.joint {
		p.end(o)
		return nil
	}
	if !o.Leader && !p.nodes[o.ToNode].takes() && !slices.Contains(s.voters, o.ToNode) {
		p.block("tablet %d: node %d is not alive, or its disk is full", t.D.TabletId, o.ToNode)
		return nil // not now
	}
	return o
}

func (p *planner) end(o *pb.MoveTabletRequest) { p.plan.Ended = append(p.plan.Ended, o) }
