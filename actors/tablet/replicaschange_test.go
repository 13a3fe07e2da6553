package tablet

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// writing starts writing rows, one after the other, at most most. stop ends it and returns the
// number of rows.
func (g *cluster) writing(tablet uint64, most int) (stop func() int) {
	var end atomic.Bool
	var done sync.WaitGroup
	n := 0
	done.Go(func() {
		for ; n < most && !end.Load(); n++ {
			g.write(tablet, fmt.Sprintf("w%04d", n), fmt.Sprint(n))
		}
	})
	return func() int {
		end.Store(true)
		done.Wait()
		return n
	}
}

// caughtUp waits until the leader counts a node's replica as up to date.
func (g *cluster) caughtUp(tablet, node uint64) {
	g.tb.Helper()
	g.wait(fmt.Sprintf("node %d has caught up", node), func() bool {
		s := g.status(g.leader(tablet), tablet)
		for _, r := range s.GetReplicas() {
			if r.Replica.NodeId == node && r.Active && !r.Snapshot && r.Match+10 > s.LastIndex {
				return true
			}
		}
		return false
	})
}

// TestOneThreeOne: a tablet goes from one voter to three, and to one on another node, during
// writes: learners catch up from the log, nothing is lost, and no replica confirms its leadership
// alone once others can be elected.
func TestOneThreeOne(t *testing.T) {
	g := newGroup(t, 3, 1, testTick)
	// snapshots are not sent here: the log must begin at its first entry
	stop := g.writing(groupTablet, 256+512/2)
	g.change(groupTablet, step(addLearner, 2))
	g.change(groupTablet, step(addLearner, 3))
	g.caughtUp(groupTablet, 2)
	g.caughtUp(groupTablet, 3)
	d := g.change(groupTablet, step(promote, 2), step(promote, 3))
	if len(group.Voters(d)) != 3 || group.IsJoint(d) || d.Epoch != 5 || d.NextReplicaId != 4 {
		t.Errorf("three voters: %v", d)
	}
	g.even3(stop())
	stop = g.writing(groupTablet, math.MaxInt)
	// The leader loses its vote, so it transfers the leadership halfway, and the answer may be lost
	// with it.
	lead := g.leader(groupTablet)
	last := lead%3 + 1
	g.change(groupTablet, step(demote, lead), step(demote, last%3+1))
	for _, node := range g.others(last) {
		g.change(groupTablet, step(dismiss, node))
	}
	n := stop()
	if now := g.leader(groupTablet); now != last {
		t.Errorf("node %d leads, %d is the only voter", now, last)
	}
	for i := range n {
		if got := g.read(groupTablet, fmt.Sprintf("w%04d", i)); got != fmt.Sprint(i) {
			t.Fatalf("row %d is %q", i, got)
		}
	}
	for _, node := range g.others(last) {
		m := g.nodes[node]
		g.wait(fmt.Sprintf("node %d knows that it was removed", node), func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.removed[groupTablet]
		})
		if e := g.at(node, groupTablet, getOf(g.take(1),
			"w0000")).GetError(); e.GetCode() != pb.Error_CODE_WRONG_TABLET {
			t.Errorf("removed replica on node %d: %v", node, e)
		}
	}
	for id, m := range g.nodes {
		if len(m.loud) > 0 {
			t.Errorf("ALONE: node %d confirmed leadership alone with %v applied", id, m.loud)
		}
	}
}

// even3 checks that the stores of all three nodes have the rows.
func (g *cluster) even3(rows int) {
	g.tb.Helper()
	g.even(groupTablet, 1, 2, 3)
	for i := range rows {
		for node := range g.nodes {
			if got := g.stored(node, fmt.Sprintf("w%04d", i)); got != fmt.Sprint(i) {
				g.tb.Fatalf("node %d has %q in row %d", node, got, i)
			}
		}
	}
}

// TestRefusedChanges: changes that would endanger the group are refused.
func TestRefusedChanges(t *testing.T) {
	g := newGroup(t, 3, 1, testTick)
	g.leader(groupTablet)
	refused := func(name string, want pb.Error_Code, req *pb.TabletRequest) {
		t.Helper()
		if e := g.at(1, groupTablet, req).GetError(); e.GetCode() != want {
			t.Errorf("%s is answered %v, want %v", name, e, want)
		}
	}
	refused("no epoch", pb.Error_CODE_INVALID, changeOf(0, step(addLearner, 2)))
	refused("another epoch", pb.Error_CODE_WRONG_TABLET, changeOf(9, step(addLearner, 2)))
	refused("nothing", pb.Error_CODE_INVALID, changeOf(1))
	refused("no node", pb.Error_CODE_INVALID, changeOf(1, step(addLearner, 0)))
	refused("twice", pb.Error_CODE_INVALID, changeOf(1, step(addLearner, 2), step(promote, 2)))
	refused("an unknown node", pb.Error_CODE_INVALID, changeOf(1, step(promote, 2)))
	refused("the last voter", pb.Error_CODE_INVALID, changeOf(1, step(demote, 1)))
	refused("a voter removed", pb.Error_CODE_INVALID, changeOf(1, step(dismiss, 1)))
	refused("no kind", pb.Error_CODE_INVALID, changeOf(1, step(0, 1)))
	g.lose(func(m *wire.RaftMessage) bool { return m.ToNode == 2 })
	g.change(groupTablet, step(addLearner, 2))
	refused("a learner that nobody has heard of", pb.Error_CODE_NOT_PROPOSED,
		changeOf(2, step(promote, 2)))
	if r := g.at(1, groupTablet, changeOf(2, step(addLearner, 2))); r.Error != nil ||
		r.GetChangeReplicas().Tablet.Epoch != 2 {
		t.Errorf("once more the same: %v", r)
	}
	refused("a learner to lead", pb.Error_CODE_UNAVAILABLE, transferTo(2))
	g.lose(nil)
	g.caughtUp(groupTablet, 2)
	if d := g.change(groupTablet, step(promote, 2)); len(group.Voters(d)) != 2 {
		t.Errorf("after the promotion %v, want 2 voters", d)
	}
}

func transferTo(node uint64) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_TransferLeader{
			TransferLeader: &pb.TransferLeaderRequest{NodeId: node},
		},
	}
}

// TestTransfer: leadership moves to the requested node; no operation under way becomes unknown.
func TestTransfer(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	g.write(groupTablet, "a", "1")
	var stops []func() error
	for w := range 4 { // prewrites are answered, refused or retried, never unknown
		stops = append(stops, g.prewriting(w))
	}
	for range 6 {
		lead := g.leader(groupTablet)
		to := lead%3 + 1
		switch r := g.at(lead, groupTablet, transferTo(to)); r.GetError().GetCode() {
		case pb.Error_CODE_UNSPECIFIED:
			if r.GetTransferLeader().LeaderNode != to {
				t.Errorf("to %d: %v", to, r)
			}
			g.wait("it leads", func() bool {
				return g.status(to, groupTablet).GetLeader() || g.leader(groupTablet) != lead
			})
		// an election happened in between, or the other was slow
		case pb.Error_CODE_NOT_LEADER, pb.Error_CODE_UNAVAILABLE:
		default:
			t.Errorf("to %d: %v", to, r)
		}
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	lead := g.leader(groupTablet)
	if r := g.at(lead, groupTablet, transferTo(
		lead)); r.GetTransferLeader().GetLeaderNode() != lead &&
		r.GetError().GetCode() != pb.Error_CODE_NOT_LEADER {
		t.Errorf("to itself: %v", r)
	}
	g.wait("away", func() bool {
		lead := g.leader(groupTablet)
		to, err := TransferTo(t.Context(), g.nodes[lead].port(groupTablet), 0)
		return err == nil && to != lead
	})
}

// prewriting prewrites rows until stopped; it returns an error if an outcome was unknown although
// no leader failed.
func (g *cluster) prewriting(worker int) (stop func() error) {
	var end atomic.Bool
	var done sync.WaitGroup
	var unknown error
	done.Go(func() {
		for i := 0; !end.Load(); i++ {
			r := g.try(groupTablet, prewriteOf(g.take(1), fmt.Sprintf("p%d-%d", worker, i), "v"))
			if r.GetError().GetCode() == pb.Error_CODE_UNKNOWN && unknown == nil {
				unknown = fmt.Errorf("worker %d: %v", worker, r.Error)
			}
		}
	})
	return func() error {
		end.Store(true)
		done.Wait()
		return unknown
	}
}

// TestTransferToTheDeaf: a failed transfer is answered, and the operations that waited for it
// continue.
func TestTransferToTheDeaf(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.even(groupTablet, 1, 2, 3)
	to := g.others(lead)[0]
	g.lose(func(m *wire.RaftMessage) bool { return m.ToNode == to })
	transfer := g.tell(lead, groupTablet, transferTo(to))
	write := g.tell(lead, groupTablet, prewriteOf(g.take(1), "b", "1"))
	g.wait("both are answered", func() bool {
		g.tick(lead)
		return len(transfer) > 0 && len(write) > 0
	})
	if code := g.code(transfer); code != pb.Error_CODE_UNAVAILABLE {
		t.Errorf("handed over: %v", code)
	}
	if code := g.code(write); code != pb.Error_CODE_UNSPECIFIED {
		t.Errorf("the write: %v", code)
	}
}

// TestSplitOnThreeReplicas: every replica creates its part of the new tablet; its leader is at once
// on the old one's node, with the inherited locks, and another replica takes over when that node
// dies.
func TestSplitOnThreeReplicas(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	for i := range 20 {
		g.write(groupTablet, fmt.Sprintf("r%02d", i), "v")
	}
	start := g.take(1)
	g.do(groupTablet, prewriteOf(start, "r15x", "locked"))
	lead := g.leader(groupTablet)
	split := g.do(groupTablet, splitOf("r10", 3)).GetSplit()
	if len(split.Right.Replicas) != 3 || split.Right.Epoch != 2 {
		t.Errorf("the right tablet is %v, want 3 replicas and epoch 2", split.Right)
	}
	first := g.leader(3)
	if first != lead && g.leader(groupTablet) == lead {
		t.Errorf("node %d leads the new tablet, %d the old one", first, lead)
	}
	for range 2 {
		got := g.do(3, getOf(g.take(1), "r15x")).GetGet().Results[0]
		if got.Status != pb.Status_STATUS_LOCKED || got.Lock.Lock.StartTs != uint64(start) {
			t.Fatalf("SPLIT-LOCKS: the split lost a lock: %v", got)
		}
		if v := g.read(3, "r11"); v != "v" {
			t.Errorf("r11 is %q", v)
		}
		g.write(3, "r12", "w")
		g.write(groupTablet, "r02", "w")
		lead = g.leader(3)
		g.nodes[lead].stop(3)
		g.leader(3, lead)
		g.nodes[lead].spawn(3)
	}
}
