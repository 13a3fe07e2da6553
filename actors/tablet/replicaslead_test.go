package tablet

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// replaced is a group in which node old has written a=1, has been cut off, and still believes that
// it leads; node lead is the present leader and has written a=2.
func replaced(t *testing.T) (g *cluster, old, lead uint64) {
	g = newGroup(t, 3, 3, 0)
	old = g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.even(groupTablet, 1, 2, 3)
	g.cut(old)
	lead = g.elect(groupTablet, g.others(old)...)
	g.write(groupTablet, "a", "2", old)
	if !g.status(old, groupTablet).Leader {
		t.Fatal("the old leader knows already")
	}
	return g, old, lead
}

// heal reconnects the nodes and delivers the present leader's messages.
func (g *cluster) heal(old, lead uint64) {
	g.tb.Helper()
	g.cut(0)
	g.wait("the old leader follows", func() bool {
		g.tick(lead)
		return !g.status(old, groupTablet).GetLeader()
	})
}

// TestOldLeaderReadsNothing: a replaced leader that does not know it answers no read. Catches
// BROKEN=no_read_index.
func TestOldLeaderReadsNothing(t *testing.T) {
	g, old, lead := replaced(t)
	answer := g.tell(old, groupTablet, getOf(g.take(1), "a"))
	for range 3 { // long enough for the read, if it were answered
		g.status(old, groupTablet)
		done := make(chan struct{})
		submitRead(g.nodes[old].readers, func() { close(done) })
		<-done
	}
	select {
	case a := <-answer:
		t.Fatalf("STALE-READ: the old leader answers %v; a newer value is committed", a.Value)
	default:
	}
	g.heal(old, lead)
	if code := g.code(answer); code != pb.Error_CODE_NOT_LEADER {
		t.Errorf("the read ended with %v", code)
	}
	if got := g.read(groupTablet, "a", old); got != "2" {
		t.Errorf("the new leader has %q", got)
	}
}

// TestAcknowledgedByQuorum: an entry in the old leader's log only is not acknowledged; its outcome
// is unknown, and it is gone. Catches BROKEN=early_ack.
func TestAcknowledgedByQuorum(t *testing.T) {
	g, old, lead := replaced(t)
	before := g.status(old, groupTablet).LastIndex
	answer := g.tell(old, groupTablet, prewriteOf(g.take(1), "b", "lost"))
	g.wait("it is in the old leader's log", func() bool {
		return g.status(old, groupTablet).LastIndex > before
	})
	g.status(old, groupTablet)
	select {
	case a := <-answer:
		t.Fatalf("EARLY-ACK: %v, and only one of three logs has it", a.Value)
	default:
	}
	waiting := g.tell(old, groupTablet, prewriteOf(g.take(1), "c", "never proposed"))
	g.status(old, groupTablet)
	g.heal(old, lead)
	if code := g.code(answer); code != pb.Error_CODE_UNKNOWN {
		t.Errorf("what was proposed ended with %v", code)
	}
	if code := g.code(waiting); code != pb.Error_CODE_NOT_LEADER {
		t.Errorf("what was not proposed ended with %v", code)
	}
	if got := g.do(groupTablet, getOf(g.take(1), "b"),
		old).GetGet().Results[0]; got.Status != pb.Status_STATUS_OK || got.Found {
		t.Errorf("of the lost write there is %v", got)
	}
}

// TestQuorumLost: a leader without a quorum's answers steps down, and every waiting caller receives
// an error.
func TestQuorumLost(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	g.cut(lead)
	read, write := g.tell(lead, groupTablet, getOf(g.take(1), "a")),
		g.tell(lead, groupTablet, prewriteOf(g.take(1), "b", "?"))
	g.status(lead, groupTablet)
	g.wait("it steps down", func() bool {
		g.tick(lead)
		return !g.status(lead, groupTablet).Leader
	})
	if code := g.code(read); code != pb.Error_CODE_NOT_LEADER {
		t.Errorf("the read ended with %v", code)
	}
	if code := g.code(write); code != pb.Error_CODE_UNKNOWN {
		t.Errorf("the write ended with %v", code)
	}
	if e := g.at(lead, groupTablet, getOf(g.take(1),
		"a")).GetError(); e.GetCode() != pb.Error_CODE_NOT_LEADER || e.LeaderNode != 0 {
		t.Errorf("afterwards %v", e)
	}
}

// TestLeaderHasAllBeforeItReads: a new leader whose log has the acknowledged entries, but which has
// not applied them yet, answers no read from its store. Catches BROKEN=unapplied_lead.
func TestLeaderHasAllBeforeItReads(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	old := g.elect(groupTablet, 1, 2, 3)
	next, third := g.others(old)[0], g.others(old)[1]
	g.write(groupTablet, "a", "1")
	g.even(groupTablet, 1, 2, 3)
	// The next leader receives the entries, but not their commit.
	g.lose(func(m *wire.RaftMessage) bool {
		if m.ToNode != next || m.FromNode != old {
			return false
		}
		message := &raftpb.Message{}
		return mustUnmarshal(m.Message, message) && len(message.Entries) == 0
	})
	g.write(groupTablet, "a", "2")
	s := g.status(next, groupTablet)
	g.wait("it has the entry", func() bool { // the third may have been in the quorum
		s = g.status(next, groupTablet)
		return s.AppliedIndex < s.LastIndex
	})
	g.nodes[old].stop(groupTablet)
	g.lose(func(m *wire.RaftMessage) bool { // the next one is elected, and then isolated for a while
		k := kind(m)
		return (m.FromNode == third && k == raftpb.MsgPreVote) ||
			(m.FromNode == next && (k == raftpb.MsgApp || k == raftpb.MsgHeartbeat))
	})
	g.nodes[third].ticker.Suspect(old) // it would not vote against a leader that it hears
	g.wait("its own entry is in its log", func() bool {
		g.tick(next)
		now := g.status(next, groupTablet)
		return now.LeaderNode == next && now.LastIndex > s.LastIndex
	})
	release := g.nodes[next].holdApplies()
	defer release()
	answer := g.tell(next, groupTablet, getOf(g.take(1), "a"))
	g.status(next, groupTablet)
	g.lose(nil)
	g.wait("an answer", func() bool {
		g.tick(next)
		return len(answer) > 0
	})
	if a := <-answer; a.Value.GetError().GetCode() != pb.Error_CODE_NOT_LEADER {
		t.Errorf("UNAPPLIED-READ: %v, with what was acknowledged not applied yet", a.Value)
	}
}

// hold blocks the log actor of the node.
func (m *member) hold() (release func()) { return (&rig{logs: m.logs}).hold() }

// holdApplies blocks the state actor of the node.
func (m *member) holdApplies() (release func()) { return (&rig{logs: m.logs}).holdApplies() }

// TestReadAfterSplit: a read is confirming its leader while its row is split away; it is redirected
// to the new tablet.
func TestReadAfterSplit(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "b", "1")
	g.write(groupTablet, "y", "1")
	g.lose(func(m *wire.RaftMessage) bool { return kind(m) == raftpb.MsgHeartbeatResp })
	at := g.take(1)
	left, right := g.tell(lead, groupTablet, getOf(at, "b")),
		g.tell(lead, groupTablet, getOf(at, "y"))
	g.do(groupTablet, splitOf("m", 3))
	g.lose(nil)
	g.wait("both answers", func() bool {
		g.tick(lead)
		return len(left) > 0 && len(right) > 0
	})
	if a := <-left; string(a.Value.GetGet().GetResults()[0].GetValue()) != "1" {
		t.Errorf("the row that stayed: %v", a.Value)
	}
	if a := <-right; a.Value.GetError().GetCode() != pb.Error_CODE_WRONG_TABLET ||
		len(a.Value.GetError().GetDescriptors()) != 2 {
		t.Errorf("EPOCH: the row that went: %v", a.Value)
	}
}

// TestLeaderKnowsUnwrittenLocks: a new leader respects and reports the locks that its store has
// only in memory.
func TestLeaderKnowsUnwrittenLocks(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	old := g.elect(groupTablet, 1, 2, 3)
	g.do(groupTablet, prewriteOf(g.take(1), "locked", "v"))
	g.even(groupTablet, 1, 2, 3)
	for _, id := range g.others(old) {
		if n := g.nodes[id].store.RawKeys()[byte(mvcc.GroupLock)]; n != 0 {
			t.Errorf("node %d has written %d locks: this test shows little", id, n)
		}
	}
	lead := g.elect(groupTablet, g.others(old)...)
	got := g.at(lead, groupTablet, getOf(g.take(1), "locked")).GetGet().GetResults()[0]
	if got.GetStatus() != pb.Status_STATUS_LOCKED {
		t.Errorf("the lock is not known: %v", got)
	}
	g.do(groupTablet, prewriteOf(g.take(1), "other", "v"))
	shown := g.at(lead, groupTablet, &pb.TabletRequest{Op: &pb.TabletRequest_History{
		History: &pb.HistoryRequest{Table: 16, Row: []byte("other"), Limit: 10},
	}}).GetHistory().GetEntries()
	for _, e := range shown {
		if e.Group == uint32(mvcc.GroupLock) {
			return
		}
	}
	t.Errorf("the history lacks the lock: %v", shown)
}

// TestLeaderKnowsLocksOnTimers: a new leader of a tablet that timers share with a table knows the locks on
// timers. Catches BROKEN=timer_locks_forgotten.
func TestLeaderKnowsLocksOnTimers(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	old := g.elect(groupTablet, 1, 2, 3)
	timer := &pb.Cell{Table: uint32(mvcc.TimerTable), Row: []byte("timer"), Column: []byte("c")}
	prewrite := prewriteOf(g.take(1), "", "v")
	prewrite.GetPrewrite().Primary, prewrite.GetPrewrite().Writes[0].Cell = timer, timer
	g.do(groupTablet, prewrite)
	g.even(groupTablet, 1, 2, 3)
	lead := g.elect(groupTablet, g.others(old)...)
	get := &pb.TabletRequest{Op: &pb.TabletRequest_Get{
		Get: &pb.GetRequest{At: uint64(g.take(1)), Cells: []*pb.Cell{timer}},
	}}
	if got := g.at(lead, groupTablet, get).GetGet().GetResults()[0]; got.GetStatus() != pb.Status_STATUS_LOCKED {
		t.Errorf("TIMER-LOCKS: the lock is not known: %v", got)
	}
}
