package tablet

import (
	"testing"
	"testing/synctest"

	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/wire"
)

// ticks returns the number of ticks of all replicas on all nodes.
func (g *cluster) ticks() (all uint64) {
	for _, m := range g.nodes {
		n, _ := m.ticker.Stats()
		all += n
	}
	return all
}

// TestReadsLeaveAGroupAtRest: reads of a quiescent group are answered without a tick and wake no
// replica, sequential and concurrent; a write wakes the whole group. In virtual time: on a slow
// machine a read may take until the next sweep.
func TestReadsLeaveAGroupAtRest(t *testing.T) { synctest.Test(t, readsAtRest) }

func readsAtRest(t *testing.T) {
	leaktest.Settle(t)
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.rest(1, 2, 3)
	ticks, sent := g.ticks(), g.messages()
	for range 20 {
		if got := string(g.at(lead, groupTablet,
			getOf(g.take(1), "a")).GetGet().GetResults()[0].GetValue()); got != "1" {
			t.Fatalf("a is %q, want 1", got)
		}
	}
	var answers []<-chan result
	for range 100 {
		answers = append(answers, g.tell(lead, groupTablet, getOf(g.take(1), "a")))
	}
	for _, a := range answers {
		if code := g.code(a); code != pb.Error_CODE_UNSPECIFIED {
			t.Errorf("a read at rest: %v", code)
		}
	}
	for node := range g.nodes {
		if s := g.status(node, groupTablet); !s.Quiescent {
			t.Errorf("node %d was woken by reads", node)
		}
	}
	if !g.asleep(1, 2, 3) || g.ticks() != ticks || g.messages() == sent {
		t.Errorf("%d ticks for 120 reads, with %d messages", g.ticks()-ticks, g.messages()-sent)
	}
	g.write(groupTablet, "a", "2")
	for node := range g.nodes {
		g.wait("the group awake", func() bool { return !g.status(node, groupTablet).Quiescent })
	}
	if got := g.read(groupTablet, "a"); got != "2" {
		t.Errorf("a is %q, want 2", got)
	}
}

// TestLostQuestionWakes: a quiescent leader whose followers do not confirm a read wakes up, asks
// again with its heartbeats, and answers when they do; if they never do it steps down.
func TestLostQuestionWakes(t *testing.T) {
	for _, healed := range []bool{true, false} {
		g := newGroup(t, 3, 3, 0)
		lead := g.elect(groupTablet, 1, 2, 3)
		g.write(groupTablet, "a", "1")
		g.rest(1, 2, 3)
		g.lose(func(m *wire.RaftMessage) bool { return kind(m) == raftpb.MsgHeartbeat })
		answer := g.tell(lead, groupTablet, getOf(g.take(1), "a"))
		g.wait("the leader awake", func() bool { return !g.status(lead, groupTablet).Quiescent })
		if !g.asleep(g.others(lead)...) {
			t.Error("a follower that has heard nothing is awake")
		}
		if healed {
			g.lose(nil)
		}
		var got result
		g.wait("an answer", func() bool {
			g.tick(lead)
			select {
			case got = <-answer:
				return true
			default:
				return false
			}
		})
		if ok := got.Err == nil && got.Value.GetError() == nil; ok != healed {
			t.Errorf("healed=%v: %v, %v", healed, got.Value, got.Err)
		}
		g.lose(nil)
		g.rest(1, 2, 3)
		if got := g.read(groupTablet, "a"); got != "1" {
			t.Errorf("a is %q, want 1", got)
		}
	}
}

// TestOldLeaderAtRest: a leader that was quiescent during another's election answers no read from
// its store.
func TestOldLeaderAtRest(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	old := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.rest(1, 2, 3)
	g.cut(old)
	rest := g.others(old)
	for _, id := range rest {
		g.nodes[id].ticker.Suspect(old)
	}
	g.wait("another leader", func() bool {
		g.tick(rest...)
		return g.status(rest[0], groupTablet).Leader || g.status(rest[1], groupTablet).Leader
	})
	g.write(groupTablet, "a", "2", old)
	if s := g.status(old, groupTablet); !s.Leader || !s.Quiescent {
		t.Fatalf("the old leader has noticed: %v", s)
	}
	answer := g.tell(old, groupTablet, getOf(g.take(1), "a"))
	g.wait("the old leader awake", func() bool { return !g.status(old, groupTablet).Quiescent })
	g.cut(0)
	g.wait("an answer", func() bool {
		g.tick(1, 2, 3)
		select {
		case r := <-answer:
			if r.Err == nil && r.Value.GetError() == nil &&
				string(r.Value.GetGet().GetResults()[0].GetValue()) != "2" {
				t.Errorf("STALE-READ: %v", r.Value)
			}
			return true
		default:
			return false
		}
	})
}
