package placement

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// maxTransfers bounds the leaders that are moved for balance in one turn: each costs its
// tablet a moment.
const maxTransfers = 4

// balanceReplicas begins moves that make the cluster more even, the best first.
func (p *planner) balanceReplicas() {
	calm := p.calm(func(t *Tablet, s shape) bool { return !t.Resting && len(s.voters) == p.plan.Target })
	for p.plan.Changing < p.s.MaxChanging {
		var (
			tablet   *Tablet
			from, to uint64
			least    change
		)
		for _, t := range calm {
			if p.busy[t.D.TabletId] {
				continue
			}
			if f, n, c := p.bestMove(t); n != 0 && (tablet == nil || c.less(least)) {
				tablet, from, to, least = t, f, n, c
			}
		}
		if tablet == nil {
			return
		}
		p.replicas.add([]uint64{from}, tablet.weight(), -1)
		p.replicas.add([]uint64{to}, tablet.weight(), 1)
		p.incoming[to]++
		p.plan.Changing++
		p.step(tablet, Step{Changes: changes(pb.ReplicaChange_KIND_ADD_LEARNER, []uint64{to}), Why: "balance"})
	}
}

// bestMove is the best move of one of the tablet's replicas; to 0: none is worth it.
func (p *planner) bestMove(t *Tablet) (from, to uint64, least change) {
	voters := t.shape().voters
	for _, v := range voters {
		if t.Meta && v == t.leader() {
			continue
		}
		for i := range p.s.Nodes {
			n := &p.s.Nodes[i]
			if !n.takes() || slices.Contains(voters, n.ID) || p.incoming[n.ID] >= p.s.MaxIncoming {
				continue
			}
			c := p.swap(t, voters, v, n.ID)
			if c.begins() && (to == 0 || c.less(least)) {
				from, to, least = v, n.ID, c
			}
		}
	}
	return from, to, least
}

// calm are the tablets that nothing is being done to, and whose voters all live.
func (p *planner) calm(also func(*Tablet, shape) bool) []*Tablet {
	var out []*Tablet
	for i := range p.s.Tablets {
		t := &p.s.Tablets[i]
		s := t.shape()
		if t.Status != nil && !p.busy[t.D.TabletId] && len(p.live(t, s.voters)) == len(s.voters) && also(t, s) {
			out = append(out, t)
		}
	}
	return out
}

// balanceLeaders moves leaders from voter to voter. Meta's stays where it is: placement
// and the oracle are beside it.
func (p *planner) balanceLeaders() {
	calm := p.calm(func(t *Tablet, s shape) bool { return !t.LeaderResting && !t.Meta && len(s.voters) > 1 })
	for range maxTransfers {
		var (
			tablet *Tablet
			to     uint64
			least  change
		)
		for _, t := range calm {
			if p.busy[t.D.TabletId] {
				continue
			}
			for _, n := range t.shape().voters {
				if n == t.leader() || !p.nodes[n].takes() || !t.caughtUp(n) {
					continue
				}
				if c := p.leaders.move(t.leader(), n, t.leading()); c.begins() && (tablet == nil || c.less(least)) {
					tablet, to, least = t, n, c
				}
			}
		}
		if tablet == nil {
			return
		}
		p.transfer(tablet, to, false, "balance")
	}
}
