package placement

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/leaktest"
)

func newTest(t *testing.T, w *world) *work {
	t.Helper()
	cfg, err := Config{Meta: w, Cluster: w, Replicas: w.target, Rest: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return newWork(cfg)
}

var start = time.Unix(1, 0)

// turns runs placement until it has had nothing to do for some turns. It returns the number of
// turns.
func (w *world) turns(p *work) (n int) {
	w.t.Helper()
	for quiet := 0; quiet < 4; n++ {
		if n > 3000 {
			w.t.Fatalf("it does not converge: %v", w.sent[max(0, len(w.sent)-30):])
		}
		before := len(w.sent)
		p.turn(context.Background(), start.Add(time.Duration(n)*time.Minute))
		if quiet++; len(w.sent) > before {
			quiet = 0
		}
	}
	return n
}

// spread returns the number of replicas and leaders on each node.
func (w *world) spread() (replicas, leaders map[uint64]int) {
	replicas, leaders = map[uint64]int{}, map[uint64]int{}
	for _, f := range w.tablets {
		for _, r := range f.d.Replicas {
			replicas[r.NodeId]++
		}
		leaders[f.leader]++
	}
	return replicas, leaders
}

// checkVoters: each tablet has the required number of voters, all on live nodes that may hold them,
// no learner, and no two voters share a zone unless they must.
func (w *world) checkVoters(want int) {
	w.t.Helper()
	zones := map[string]int{}
	for _, r := range w.records {
		if w.alive[r.NodeId] && r.State == pb.NodeState_NODE_STATE_ACTIVE {
			zones[r.Labels["zone"]]++
		}
	}
	for _, f := range w.tablets {
		voters, learners := f.on()
		if len(voters) != want || len(learners) > 0 || f.next != nil {
			w.t.Errorf("tablet %d: voters %v, learners %v, want %d voters", f.d.TabletId, voters,
				learners, want)
		}
		in := map[string]int{}
		for _, v := range voters {
			if !w.alive[v] || w.records[v].State != pb.NodeState_NODE_STATE_ACTIVE {
				w.t.Errorf("tablet %d: a voter on node %d, which is %v", f.d.TabletId, v,
					w.records[v].State)
			}
			in[w.records[v].Labels["zone"]]++
		}
		for zone, n := range in {
			for other, have := range zones {
				if in[other]+1 < n && in[other] < have {
					w.t.Errorf("tablet %d: %d voters in zone %s, %d in %s", f.d.TabletId, n, zone,
						in[other], other)
				}
			}
		}
	}
}

// checkEven: each node is within a fifth, or one, of an even distribution.
func (w *world) checkEven(what string, on map[uint64]int, but uint64) {
	w.t.Helper()
	sum, nodes := 0, 0
	for id, r := range w.records {
		if w.alive[id] && r.State == pb.NodeState_NODE_STATE_ACTIVE {
			sum, nodes = sum+on[id], nodes+1
		}
	}
	mean := float64(sum) / float64(nodes)
	for id, r := range w.records {
		off := max(float64(on[id])-math.Ceil(mean), math.Floor(mean)-float64(on[id]))
		if id != but && w.alive[id] && r.State == pb.NodeState_NODE_STATE_ACTIVE &&
			off > max(1, mean/5) {
			w.t.Errorf("%s: node %d has %d of a mean of %.2f: %v", what, id, on[id], mean, on)
		}
	}
}

// TestGrows: with one node, then three, then five, the number of replicas grows automatically and
// the replicas are spread.
func TestGrows(t *testing.T) {
	w := newWorld(t, 1)
	for range 20 {
		w.add(1)
	}
	p := newTest(t, w)
	if n := w.turns(p); len(w.sent) > 0 {
		t.Fatalf("one node, %d turns: %v", n, w.sent)
	}
	w.join(2, "")
	w.turns(p)
	w.checkVoters(1)
	w.join(3, "")
	w.turns(p)
	w.checkVoters(3)
	if s := p.status.snapshot(); s.Target != 3 || s.UnderReplicated != 0 || s.Changing != 0 ||
		s.Moves < 40 {
		t.Errorf("status %v", s)
	}
	w.join(4, "")
	w.join(5, "")
	w.turns(p)
	w.checkVoters(3)
	replicas, leaders := w.spread()
	w.checkEven("replicas", replicas, 0)
	w.checkEven("leaders", leaders, 0)
	if w.tablets[0].leader != 1 {
		t.Errorf("meta's leader has moved to node %d for balance", w.tablets[0].leader)
	}
}

// TestOneMove is a complete move: learner, exchange, removal, and no other step.
func TestOneMove(t *testing.T) {
	w := newWorld(t, 4)
	w.linger, w.slow = 2, 3
	w.add(1, 2, 3)
	w.orders = []*pb.MoveTabletRequest{{TabletId: 1, FromNode: 1, ToNode: 4}}
	w.turns(newTest(t, w))
	want := "1 KIND_ADD_LEARNER 4,1 lead 2,1 KIND_PROMOTE 4,1 KIND_DEMOTE 1,1 KIND_REMOVE 1"
	if got := strings.Join(w.sent, ","); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	if len(w.orders) > 0 {
		t.Errorf("the order stays: %v", w.orders)
	}
}

// TestOneVoterMoves: a tablet of one voter moves with its leader, which votes together with its
// successor for a moment.
func TestOneVoterMoves(t *testing.T) {
	w := newWorld(t, 2)
	w.add(1)
	w.records[1].State = pb.NodeState_NODE_STATE_DRAINING
	w.turns(newTest(t, w))
	want := "1 KIND_ADD_LEARNER 2,1 KIND_PROMOTE 2,1 lead 2,1 KIND_DEMOTE 1,1 KIND_REMOVE 1"
	if got := strings.Join(w.sent, ","); got != want ||
		w.records[1].State != pb.NodeState_NODE_STATE_DRAINED {
		t.Errorf("node 1 is %v; sent %s\nwant %s", w.records[1].State, got, want)
	}
}

// TestUnfenced: placement on a node that no longer leads meta resumes with a plan that another has
// overtaken. Of five voters each plan removes two others; one voter would be left.
func TestUnfenced(t *testing.T) {
	w := newWorld(t, 5)
	f := w.add(1, 2, 3, 4, 5)
	other := w.add(4, 5, 3)
	old, successor := newTest(t, w), newTest(t, w)
	s, err := old.gather(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	plan := Make(s)
	other.d.Replicas, other.leader = nil, 1
	for _, n := range []uint64{1, 2, 3} {
		other.grow(n, false)
		other.match[n] = lastIndex
	}
	other.d.Epoch++
	f.leader = 4
	successor.turn(t.Context(), start)
	voters, _ := f.on()
	if len(voters) != 3 {
		t.Fatalf("voters %v", voters)
	}
	_ = old.execute(t.Context(), start, plan.Steps) // refused
	if voters, _ := f.on(); len(voters) != 3 {
		t.Errorf("MOVE-UNFENCED: voters %v", voters)
	}
}

// TestGoneOnlyByOracleTime: replicas of a node that is missing from gossip stay until its record
// says that it has been absent long enough; a node that a tablet's leader hears is not absent.
func TestGoneOnlyByOracleTime(t *testing.T) {
	w := newWorld(t, 4)
	for range 3 {
		w.add(1, 2, 3)
	}
	w.silent[3] = true
	p := newTest(t, w)
	w.turns(p) // perhaps to balance
	if w.records[3].GoneSince != 0 {
		t.Error("a node is gone that tablets hear of")
	}
	w.silent[3], w.alive[3] = false, false
	w.sent = nil
	p.turn(t.Context(), start)
	w.now += p.cfg.GoneAfter.Milliseconds() - 1000
	p = newTest(t, w) // meta's leader has changed
	w.turns(p)
	for _, s := range w.sent {
		if strings.Contains(s, "REMOVE 3") || strings.Contains(s, "DEMOTE 3") {
			t.Fatalf("before its time: %v", w.sent)
		}
	}
	if w.records[3].GoneSince == 0 {
		t.Fatal("nothing is recorded")
	}
	w.now += 2000
	w.turns(p)
	w.checkVoters(3)
	if w.records[3].State != pb.NodeState_NODE_STATE_GONE {
		t.Errorf("node 3 is %v", w.records[3].State)
	}
	w.alive[3] = true
	w.turns(p)
	if w.records[3].State != pb.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("back again, node 3 is %v", w.records[3].State)
	}
}

// TestForgets: of the nodes that are gone, those without replicas are forgotten, and not before
// this leader of meta has watched for a while.
func TestForgets(t *testing.T) {
	w := newWorld(t, 4)
	w.add(1, 2, 3)
	w.join(5, "")
	p := newTest(t, w)
	p.cfg.ForgetAfter = 2 * p.cfg.GoneAfter
	for id := uint64(2); id <= 5; id++ { // 2 and 3 are voters, and no node can replace them
		w.alive[id] = false
	}
	p.turn(t.Context(), start)
	for _, id := range []uint64{4, 5} {
		if w.records[id].GetGoneSince() == 0 {
			t.Fatalf("node %d is not recorded as away", id)
		}
	}
	w.now += p.cfg.ForgetAfter.Milliseconds() + 1000
	again := newTest(t, w) // another node leads meta
	again.cfg.ForgetAfter = p.cfg.ForgetAfter
	again.turn(t.Context(), start)
	if len(w.records) != 5 {
		t.Fatalf("forgotten at the first look: %d are left", len(w.records))
	}
	again.turn(t.Context(), start.Add(p.cfg.GoneAfter))
	if w.records[4] != nil || w.records[5] != nil || len(w.records) != 3 {
		t.Errorf("left are %v", w.records)
	}
}

// TestNoNodeInItsPlace: a tablet keeps lost voters rather than shrink.
func TestNoNodeInItsPlace(t *testing.T) {
	w := newWorld(t, 3)
	w.add(1, 2, 3)
	w.alive[3] = false
	p := newTest(t, w)
	p.turn(t.Context(), start)
	w.now += 2 * p.cfg.GoneAfter.Milliseconds()
	w.turns(p)
	s := p.status.snapshot()
	if len(w.sent) > 0 || s.UnderReplicated != 0 && s.Target == 3 || len(s.Blocked) != 1 {
		t.Errorf("sent %v, status %v", w.sent, s)
	}
	w.join(4, "")
	w.turns(p)
	w.checkVoters(3)
}

// TestDrain: leaders leave first, then replicas; then the node is drained. Without another node the
// drain waits and reports why.
func TestDrain(t *testing.T) {
	w := newWorld(t, 3)
	for range 5 {
		w.add(1, 2, 3)
	}
	p := newTest(t, w)
	w.turns(p)
	w.records[1].State = pb.NodeState_NODE_STATE_DRAINING
	w.turns(p)
	if _, leaders := w.spread(); leaders[1] > 0 {
		t.Errorf("node 1 drains and leads: %v", leaders)
	}
	if why := p.status.snapshot().BlockedNodes[1]; !strings.Contains(why, "ought to have 3") ||
		w.records[1].State != pb.NodeState_NODE_STATE_DRAINING {
		t.Errorf("a third of three nodes: %v, %q", w.records[1].State, why)
	}
	w.join(4, "")
	w.turns(p)
	w.checkVoters(3)
	if w.records[1].State != pb.NodeState_NODE_STATE_DRAINED ||
		p.status.snapshot().BlockedNodes[1] != "" {
		t.Errorf("node 1 is %v, %q", w.records[1].State, p.status.snapshot().BlockedNodes[1])
	}
	w.records[1].State = pb.NodeState_NODE_STATE_ACTIVE // cancelled
	w.turns(p)
	replicas, _ := w.spread()
	w.checkEven("replicas", replicas, 0)
}

// TestHalfDrained: a drain cancelled halfway leaves no partial change.
func TestHalfDrained(t *testing.T) {
	for n := range 12 {
		w := newWorld(t, 4)
		w.linger = 1
		for range 4 {
			w.add(1, 2, 3)
		}
		p := newTest(t, w)
		w.records[1].State = pb.NodeState_NODE_STATE_DRAINING
		for i := range n {
			p.turn(t.Context(), start.Add(time.Duration(i)*time.Minute))
		}
		w.records[1].State = pb.NodeState_NODE_STATE_ACTIVE
		w.turns(p)
		w.checkVoters(3)
	}
}

// TestZones: each of three zones has one voter of three, and at most two of five; the loss of any
// zone leaves a quorum.
func TestZones(t *testing.T) {
	for _, replicas := range []int{3, 5} {
		w := newWorld(t, 6, "a", "a", "b", "b", "c", "c")
		w.target = replicas
		for range 8 {
			w.add(1, 2, 3)
		}
		w.turns(newTest(t, w))
		w.checkVoters(replicas)
		for _, f := range w.tablets {
			in := map[string]int{}
			voters, _ := f.on()
			for _, v := range voters {
				in[w.records[v].Labels["zone"]]++
			}
			for zone, n := range in {
				if n > replicas/2 {
					t.Errorf("tablet %d of %d voters has no quorum without zone %s: %v",
						f.d.TabletId, replicas, zone, in)
				}
			}
		}
	}
}

// TestImpossibleOrders: requested moves that have become impossible end; one for a briefly absent
// node waits.
func TestImpossibleOrders(t *testing.T) {
	w := newWorld(t, 5)
	w.add(1, 2, 3)
	w.add(1, 2, 3)
	w.add(1, 2, 3)
	w.records[4].State = pb.NodeState_NODE_STATE_DRAINED
	w.alive[5] = false
	w.orders = []*pb.MoveTabletRequest{
		{TabletId: 1, FromNode: 1, ToNode: 4},      // drained since
		{TabletId: 2, FromNode: 1, ToNode: 5},      // absent
		{TabletId: 3, ToNode: 4, Leader: true},     // no longer a voter
		{TabletId: 9, FromNode: 1, ToNode: 2},      // no tablet
		{TabletId: 1, FromNode: 4, ToNode: 5},      // neither node holds it
		{TabletId: 1, ToNode: 1_000, Leader: true}, // no node
	}
	p := newTest(t, w)
	w.turns(p)
	if len(w.orders) != 1 || w.orders[0].TabletId != 2 {
		t.Errorf("orders %v", w.orders)
	}
	if b := fmt.Sprint(p.status.snapshot().Blocked); !strings.Contains(b, "node 5 is not alive") {
		t.Errorf("blocked: %s", b)
	}
	w.alive[5] = true
	w.turns(p)
	if voters, _ := w.tablets[1].on(); len(w.orders) != 0 || !slices.Contains(voters, 5) ||
		slices.Contains(voters, 1) {
		t.Errorf("orders %v, voters %v", w.orders, voters)
	}
	w.orders = []*pb.MoveTabletRequest{{TabletId: 3, ToNode: 2, Leader: true}}
	w.sent, w.tablets[2].leader = nil, 1
	w.turns(p)
	if len(w.orders) != 0 || len(w.sent) == 0 || w.sent[0] != "3 lead 2" {
		t.Errorf("orders %v, sent %v", w.orders, w.sent)
	}
}

// TestSpawn: the actor takes turns by timer and on request, and ends with Stop.
func TestSpawn(t *testing.T) {
	leaktest.Check(t)
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	w := newWorld(t, 3)
	w.add(1)
	p, err := Spawn(system, Config{
		Meta: w, Cluster: w, Busy: time.Millisecond, Interval: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for p.Status().Moves < 2 {
		p.Wake()
		if ctx.Err() != nil {
			t.Fatalf("status %v", p.Status())
		}
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{}, {Meta: w, Cluster: w, Replicas: 2},
		{Meta: w, Cluster: w, Replicas: 7}} {
		if _, err := Spawn(system, cfg); err == nil {
			t.Errorf("started with %+v", cfg)
		}
	}
}
