package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file is the planner: Make turns a State into a Plan. It is pure: it reads no clock,
// does no I/O and keeps nothing between calls. The actor calls it once a turn.

// Step is one operation on a tablet: a change of its replicas, or of its leader.
type Step struct {
	Tablet, Epoch uint64 // Epoch is that of the descriptor the step was planned from
	Changes       []*pb.ReplicaChange
	Leader        uint64 // the node that is to lead; 0 in a change of replicas
	Ordered       bool   // the step carries out an operator's order
	Why           string
}

// Plan is the present steps, and a summary of the state from which they were planned.
type Plan struct {
	Steps           []Step
	Target          int // replicas of each tablet
	UnderReplicated int // tablets with fewer than Target live voters
	// Changing is the number of tablets in a joint change or with a learner, now or after Steps.
	Changing      int
	Blocked       []string                // what cannot proceed, and why; at most maxBlocked
	BlockedNodes  map[uint64]string       // draining nodes that cannot be emptied, and why
	Drained, Gone []uint64                // draining and absent nodes that hold nothing any more
	Ended         []*pb.MoveTabletRequest // orders that are done, or have become impossible
}

// Target returns the number of replicas per tablet, given the configured number and the number of
// nodes that may hold them. It is odd.
func Target(configured, nodes int) int { return oddFloor(min(configured, nodes)) }

// maxBlocked limits the length of Plan.Blocked.
const maxBlocked = 8

// planner makes one plan. Its tallies start with the present state and follow each decision, so
// that later decisions see earlier ones as if executed.
type planner struct {
	s                 *State
	plan              *Plan
	nodes             map[uint64]*Node
	orders            map[uint64]*pb.MoveTabletRequest
	replicas, leaders *tally
	incoming          map[uint64]int  // by node: learners that have not caught up
	busy              map[uint64]bool // tablets that are changing or have a step in the plan
	// deferred means that a replica that is needed has to wait: none is moved for balance.
	deferred bool
}

// Make returns the plan for a state. It is a pure function: the same state gives the same
// plan.
func Make(s *State) *Plan {
	p := newPlanner(s)
	p.count()
	for _, g := range p.targets() {
		p.advance(g)
	}
	if !p.deferred {
		p.balanceReplicas()
	}
	p.balanceLeaders()
	p.findEmptyNodes()
	return p.plan
}

// newPlanner returns a planner whose tallies are empty.
func newPlanner(s *State) *planner {
	p := &planner{
		s: s, plan: &Plan{BlockedNodes: map[uint64]string{}},
		nodes: map[uint64]*Node{}, orders: map[uint64]*pb.MoveTabletRequest{},
		replicas: newTally(s.Nodes), leaders: newTally(s.Nodes),
		incoming: map[uint64]int{}, busy: map[uint64]bool{},
	}
	holders := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		p.nodes[n.ID] = n
		if n.mayHold() {
			holders++
		}
	}
	p.plan.Target = Target(s.Replicas, holders)
	for _, o := range s.Orders {
		p.orders[o.TabletId] = o
	}
	return p
}

// count fills the tallies with the present replicas and leaders, counts the changes under
// way, and ends the orders for tablets that do not exist.
func (p *planner) count() {
	known := map[uint64]bool{}
	for i := range p.s.Tablets {
		t := &p.s.Tablets[i]
		known[t.D.TabletId] = true
		s := t.shape()
		p.replicas.add(p.countedVoters(s), t.weight(), 1)
		p.leaders.add([]uint64{t.leader()}, t.leading(), 1)
		p.replicas.expect(p.width(len(s.voters)), t.weight())
		p.leaders.expect(1, t.leading())
		if s.joint || len(s.learners) > 0 {
			p.plan.Changing++
			p.busy[t.D.TabletId] = true
		}
		for _, n := range s.learners {
			if !t.caughtUp(n) {
				p.incoming[n]++
			}
		}
		if len(p.live(t, s.voters)) < p.plan.Target {
			p.plan.UnderReplicated++
		}
	}
	for _, o := range p.s.Orders {
		if !known[o.TabletId] {
			p.end(o)
		}
	}
}

// weight returns the load of one replica of the tablet on its node.
func (t *Tablet) weight() weight { return weight{1, float64(t.Status.GetSizeBytes()), t.Load} }

// leading returns the additional load of leading the tablet on the leader's node.
func (t *Tablet) leading() weight { return weight{1, 0, t.Load} }

// byNeed returns the tablets in the order in which they are repaired: those with the
// fewest live voters first, and among equals meta first.
func (p *planner) byNeed() []*Tablet {
	out := make([]*Tablet, len(p.s.Tablets))
	for i := range p.s.Tablets {
		out[i] = &p.s.Tablets[i]
	}
	need := map[*Tablet]int{}
	for _, t := range out {
		need[t] = min(len(p.live(t, t.shape().voters)), p.plan.Target)
	}
	slices.SortStableFunc(out, func(a, b *Tablet) int { return need[a] - need[b] })
	return out
}

// live returns those of the nodes whose replicas of the tablet can vote now.
func (p *planner) live(t *Tablet, nodes []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(nodes), func(id uint64) bool {
		n := p.nodes[id]
		silent := t.Status != nil && id != t.leader() && !t.progress(id).GetActive()
		return n == nil || !n.Alive || silent
	})
}

// target is a tablet with the goal for its voters.
type target struct {
	*Tablet
	shape
	goal  []uint64
	short string // why the goal falls short of the tablet's width; usually empty
	order *pb.MoveTabletRequest
}

// targets returns all tablets with their goals, in the order of byNeed. It finds the goals
// of repairs first: those of moves for balance depend on them.
func (p *planner) targets() []*target {
	var out []*target
	for _, t := range p.byNeed() {
		g := &target{Tablet: t, shape: t.shape(), order: p.orderOf(t)}
		g.goal, g.short = p.goal(t, g.shape, g.order)
		p.replicas.add(p.countedVoters(g.shape), t.weight(), -1)
		p.replicas.add(g.goal, t.weight(), 1)
		out = append(out, g)
	}
	for _, g := range out {
		repaired := len(g.goal) != len(g.voters) || len(without(g.voters, g.goal...)) > 0
		if len(g.fresh) == 0 || g.joint || g.short != "" || repaired {
			continue
		}
		before := g.goal
		g.goal = p.balanceGoal(g)
		p.replicas.add(before, g.weight(), -1)
		p.replicas.add(g.goal, g.weight(), 1)
	}
	return out
}

// advance plans the step that brings one tablet nearer to its goal, if it can have one.
func (p *planner) advance(g *target) {
	if g.short != "" {
		p.block("tablet %d: %s", g.D.TabletId, g.short)
	}
	if g.joint {
		return // the tablet completes a joint change by itself
	}
	if p.discardStale(g) {
		return
	}
	settled := len(g.goal) == len(g.voters) && len(without(g.goal, g.voters...)) == 0 &&
		len(g.learners) == 0
	switch {
	case g.Status != nil:
		if !p.moveLeaderAway(g) && !settled {
			p.planReplicaStep(g)
		}
	case !settled:
		p.block("tablet %d: its leader does not answer", g.D.TabletId)
	}
}

// block records why something cannot proceed.
func (p *planner) block(format string, args ...any) {
	if len(p.plan.Blocked) < maxBlocked {
		p.plan.Blocked = append(p.plan.Blocked, fmt.Sprintf(format, args...))
	}
}

// addStep adds a step for the tablet to the plan. Callers add at most one per tablet.
func (p *planner) addStep(t *Tablet, st Step) {
	st.Tablet, st.Epoch = t.D.TabletId, t.D.Epoch
	p.busy[st.Tablet] = true
	p.plan.Steps = append(p.plan.Steps, st)
}

// change plans the same kind of replica change on each of the nodes.
func (p *planner) change(g *target, kind pb.ReplicaChange_Kind, nodes []uint64, why string) {
	p.addStep(g.Tablet, Step{Changes: changes(kind, nodes), Ordered: g.order != nil, Why: why})
}

func changes(kind pb.ReplicaChange_Kind, nodes []uint64) []*pb.ReplicaChange {
	out := make([]*pb.ReplicaChange, len(nodes))
	for i, n := range nodes {
		out[i] = &pb.ReplicaChange{Kind: kind, NodeId: n}
	}
	return out
}

// transfer plans a transfer of the tablet's leadership to a node.
func (p *planner) transfer(t *Tablet, to uint64, ordered bool, why string) {
	p.leaders.add([]uint64{t.leader()}, t.leading(), -1)
	p.leaders.add([]uint64{to}, t.leading(), 1)
	p.addStep(t, Step{Leader: to, Ordered: ordered, Why: why})
}

// findEmptyNodes adds to the plan the draining or absent nodes that hold nothing any more.
// It adds none unless every tablet is known, with its leader's status.
func (p *planner) findEmptyNodes() {
	if !complete(p.s.Tablets) {
		return
	}
	holds := map[uint64]bool{}
	for i := range p.s.Tablets {
		t := &p.s.Tablets[i]
		if t.Status == nil {
			return
		}
		for _, r := range t.D.GetReplicas() {
			holds[r.NodeId] = true
		}
	}
	for _, n := range p.s.Nodes {
		switch {
		case holds[n.ID]:
		case n.State == pb.NodeState_NODE_STATE_DRAINING:
			p.plan.Drained = append(p.plan.Drained, n.ID)
		case n.State == pb.NodeState_NODE_STATE_ACTIVE && n.Gone:
			p.plan.Gone = append(p.plan.Gone, n.ID)
		}
	}
}

// complete reports whether the tablets' ranges leave no gap. There is a gap while a tablet
// that has just split off is not in the map yet.
func complete(tablets []Tablet) bool {
	starts := map[wire.Position]bool{}
	for _, t := range tablets {
		starts[wire.StartOf(t.D)] = true
	}
	unbounded := false
	for _, t := range tablets {
		end, bounded := wire.EndOf(t.D)
		if bounded && !starts[end] {
			return false
		}
		unbounded = unbounded || !bounded
	}
	return unbounded && starts[wire.Position{}]
}
