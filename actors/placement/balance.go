package placement

import (
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// This file plans the moves that only make the cluster more even. It runs last in Make, on
// the planner's tallies, which by then include what the steps of this plan will change.

// maxTransfers limits the leaders that are moved for balance in one turn. A tablet serves
// nothing for a moment while its leader moves.
const maxTransfers = 4

// balanceReplicas begins moves of replicas that make the cluster more even, the best one
// first, until no move is worth its cost or maxChanging tablets are changing.
func (p *planner) balanceReplicas() {
	settled := p.settledTablets(func(t *Tablet, s shape) bool {
		return !t.Resting && len(s.voters) == p.plan.Target
	})
	for p.plan.Changing < maxChanging {
		var (
			tablet   *Tablet
			from, to uint64
			least    change
		)
		uneven := p.unevenNodes()
		for _, t := range settled {
			if p.busy[t.D.TabletId] {
				continue
			}
			if f, n, c := p.bestMove(t, uneven); n != 0 && (tablet == nil || c.less(least)) {
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
		// Only the learner is planned now. Later turns recognize its purpose (balanceGoal).
		learner := changes(pb.ReplicaChange_KIND_ADD_LEARNER, []uint64{to})
		p.addStep(tablet, Step{Changes: learner, Why: "balance"})
	}
}

// unevenNodes are the nodes at which a move can gain anything: a move between two others only
// makes the cluster less even.
type unevenNodes struct {
	all   []*Node         // nodes with room for one more learner, in the order of State.Nodes
	under []*Node         // nodes in all with a figure (number, bytes, load) below mean - slack
	over  map[uint64]bool // by node: it has such a figure above mean + slack
}

// unevenNodes returns the uneven nodes by the present tallies.
func (p *planner) unevenNodes() unevenNodes {
	u := unevenNodes{over: map[uint64]bool{}}
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		under, over := p.replicas.uneven(n.ID)
		u.over[n.ID] = over
		if !n.accepts() || p.incoming[n.ID] >= maxIncoming {
			continue
		}
		u.all = append(u.all, n)
		if under {
			u.under = append(u.under, n)
		}
	}
	return u
}

// bestMove returns the best move of one of the tablet's replicas. If no move is worth its
// cost, to is 0. In an even cluster it looks at few nodes for each tablet.
func (p *planner) bestMove(t *Tablet, uneven unevenNodes) (from, to uint64, least change) {
	voters := t.shape().voters
	for _, v := range voters {
		// Moving meta's leader would move placement itself, and the oracle.
		if t.Meta && v == t.leader() {
			continue
		}
		candidates := uneven.under
		if uneven.over[v] || p.inZone(v, voters) > 0 {
			candidates = uneven.all
		}
		for _, n := range candidates {
			if slices.Contains(voters, n.ID) {
				continue
			}
			c := p.swapDelta(t, voters, v, n.ID)
			if c.justifiesMove() && (to == 0 || c.less(least)) {
				from, to, least = v, n.ID, c
			}
		}
	}
	return from, to, least
}

// settledTablets returns the tablets that pass the filter, have no step or change under
// way, whose leaders answer, and whose voters are all live.
func (p *planner) settledTablets(filter func(*Tablet, shape) bool) []*Tablet {
	var out []*Tablet
	for i := range p.s.Tablets {
		t := &p.s.Tablets[i]
		s := t.shape()
		if t.Status == nil || p.busy[t.D.TabletId] || len(p.live(t, s.voters)) < len(s.voters) {
			continue
		}
		if filter(t, s) {
			out = append(out, t)
		}
	}
	return out
}

// balanceLeaders spreads leaders over the nodes by moving them among the voters of their
// tablets. Meta's leader is not moved, because placement and the oracle move with it.
func (p *planner) balanceLeaders() {
	settled := p.settledTablets(func(t *Tablet, s shape) bool {
		return !t.LeaderResting && !t.Meta && len(s.voters) > 1
	})
	for range maxTransfers {
		var (
			tablet *Tablet
			to     uint64
			least  change
		)
		for _, t := range settled {
			if p.busy[t.D.TabletId] {
				continue
			}
			for _, n := range t.shape().voters {
				if n == t.leader() || !p.nodes[n].accepts() || !t.caughtUp(n) {
					continue
				}
				c := p.leaders.moveDelta(t.leader(), n, t.leading())
				if c.justifiesMove() && (tablet == nil || c.less(least)) {
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
