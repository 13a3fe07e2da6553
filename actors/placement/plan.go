package placement

import (
	"fmt"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Step is one operation on a tablet: a change of its replicas, or of its leader.
type Step struct {
	Tablet, Epoch uint64
	Changes       []*pb.ReplicaChange
	Leader        uint64 // node that is to lead; 0: this is a change of replicas
	Ordered       bool   // an operator's
	Why           string
}

// Plan is what is to be done now, and how things stand.
type Plan struct {
	Steps           []Step
	Target          int                     // replicas of each tablet
	UnderReplicated int                     // tablets with fewer voters on live nodes
	Changing        int                     // tablets with a learner or between two configurations
	Blocked         []string                // what does not go on, and why; at most maxBlocked
	BlockedNodes    map[uint64]string       // nodes that do not drain, and why
	Drained, Gone   []uint64                // nodes that hold nothing any more
	Ended           []*pb.MoveTabletRequest // orders that are done, or can't be done any more
}

// Target is how many replicas each tablet gets of the configured number if so many nodes
// may hold them: an odd number.
func Target(configured, nodes int) int { return oddFloor(min(configured, nodes)) }

// maxBlocked bounds the reasons that are told.
const maxBlocked = 8

// planner makes one plan.
type planner struct {
	s                 *State
	plan              *Plan
	nodes             map[uint64]*Node
	orders            map[uint64]*pb.MoveTabletRequest
	replicas, leaders *tally
	incoming          map[uint64]int // learners that have not caught up
	busy              map[uint64]bool
	late              bool // something that is needed has to wait: nothing is begun for balance
}

// Make is the plan for a state. It is a pure function: the same state gives the same plan.
func Make(s *State) *Plan {
	p := &planner{
		s: s, plan: &Plan{BlockedNodes: map[uint64]string{}}, nodes: map[uint64]*Node{}, orders: map[uint64]*pb.MoveTabletRequest{},
		replicas: newTally(s.Nodes), leaders: newTally(s.Nodes), incoming: map[uint64]int{}, busy: map[uint64]bool{},
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
	p.count()
	for _, g := range p.targets() {
		p.tend(g)
	}
	if !p.late {
		p.balanceReplicas()
	}
	p.balanceLeaders()
	p.emptied()
	return p.plan
}

// count begins the tallies with what is, and counts what is under way.
func (p *planner) count() {
	known := map[uint64]bool{}
	for i := range p.s.Tablets {
		t := &p.s.Tablets[i]
		known[t.D.TabletId] = true
		s := t.shape()
		p.replicas.add(p.places(s), t.weight(), 1)
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

// weight is what each replica of the tablet brings to its node; leading is what its
// leadership does.
func (t *Tablet) weight() weight { return weight{1, float64(t.Status.GetSizeBytes()), t.Load} }

func (t *Tablet) leading() weight { return weight{1, 0, t.Load} }

// byNeed are the tablets in the order in which they are tended: those first that have the
// fewest live voters; of these meta.
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

// live are those of the nodes whose replicas of the tablet can vote now.
func (p *planner) live(t *Tablet, nodes []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(nodes), func(id uint64) bool {
		n := p.nodes[id]
		return n == nil || !n.Alive || t.Status != nil && id != t.leader() && !t.progress(id).GetActive()
	})
}

// target is where a tablet's replicas ought to be.
type target struct {
	*Tablet
	shape
	goal  []uint64
	short string // why the goal is not as it ought to be
	order *pb.MoveTabletRequest
}

// targets finds the goals: first of those that lack something, then of those that are
// being moved for balance, which depends on the others.
func (p *planner) targets() []*target {
	var out []*target
	for _, t := range p.byNeed() {
		g := &target{Tablet: t, shape: t.shape(), order: p.orderOf(t)}
		g.goal, g.short = p.goal(t, g.shape, g.order)
		p.replicas.add(p.places(g.shape), t.weight(), -1)
		p.replicas.add(g.goal, t.weight(), 1)
		out = append(out, g)
	}
	for _, g := range out {
		if len(g.fresh) == 0 || g.joint || g.short != "" || len(g.goal) != len(g.voters) || len(without(g.voters, g.goal...)) > 0 {
			continue
		}
		before := g.goal
		g.goal = p.purpose(g)
		p.replicas.add(before, g.weight(), -1)
		p.replicas.add(g.goal, g.weight(), 1)
	}
	return out
}

// tend brings one tablet a step nearer to its goal.
func (p *planner) tend(g *target) {
	if g.short != "" {
		p.block("tablet %d: %s", g.D.TabletId, g.short)
	}
	if g.joint {
		return // the tablet leaves it by itself
	}
	settled := len(g.goal) == len(g.voters) && len(without(g.goal, g.voters...)) == 0 && len(g.learners) == 0
	switch {
	case g.Status != nil:
		if !p.leaderAway(g) && !settled {
			p.toward(g)
		}
	case !settled:
		p.block("tablet %d: its leader does not answer", g.D.TabletId)
	}
}

// block tells why something does not go on.
func (p *planner) block(format string, args ...any) {
	if len(p.plan.Blocked) < maxBlocked {
		p.plan.Blocked = append(p.plan.Blocked, fmt.Sprintf(format, args...))
	}
}

// step plans a step for the tablet; there is at most one.
func (p *planner) step(t *Tablet, st Step) {
	st.Tablet, st.Epoch = t.D.TabletId, t.D.Epoch
	p.busy[st.Tablet] = true
	p.plan.Steps = append(p.plan.Steps, st)
}

// change plans a change of replicas of one kind.
func (p *planner) change(g *target, kind pb.ReplicaChange_Kind, nodes []uint64, why string) {
	p.step(g.Tablet, Step{Changes: changes(kind, nodes), Ordered: g.order != nil, Why: why})
}

func changes(kind pb.ReplicaChange_Kind, nodes []uint64) []*pb.ReplicaChange {
	out := make([]*pb.ReplicaChange, len(nodes))
	for i, n := range nodes {
		out[i] = &pb.ReplicaChange{Kind: kind, NodeId: n}
	}
	return out
}

// transfer plans a change of the leader.
func (p *planner) transfer(t *Tablet, to uint64, ordered bool, why string) {
	p.leaders.add([]uint64{t.leader()}, t.leading(), -1)
	p.leaders.add([]uint64{to}, t.leading(), 1)
	p.step(t, Step{Leader: to, Ordered: ordered, Why: why})
}

// emptied finds the nodes that hold nothing any more, if all tablets are known to be looked at.
func (p *planner) emptied() {
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

// complete reports whether the tablets' ranges leave no gap: one that has just split off
// may not be in the map yet.
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
