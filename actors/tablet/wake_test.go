package tablet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/internal/wire"
)

// asleep reports whether no replica on the nodes is ticked.
func (g *cluster) asleep(nodes ...uint64) bool {
	for _, id := range nodes {
		if _, awake := g.nodes[id].ticker.Stats(); awake > 0 {
			return false
		}
	}
	return true
}

// rest ticks the nodes until all their replicas are quiescent.
func (g *cluster) rest(nodes ...uint64) {
	g.tb.Helper()
	g.wait("all sleep", func() bool {
		g.tick(nodes...)
		return g.asleep(nodes...)
	})
}

func (g *cluster) messages() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent
}

// add gives all nodes a replica of each of n more tablets, with empty ranges behind all others.
func (g *cluster) add(n int) (ids []uint64) {
	for i := range n {
		id := uint64(100 + i)
		ids = append(ids, id)
		d := proto.CloneOf(g.first)
		d.TabletId, d.StartTable, d.EndTable, d.EndUnbounded = id, uint32(1000+i), uint32(1001+i),
			false
		for node := uint64(1); node <= 3; node++ {
			g.nodes[node].bootstrap(d, node)
		}
	}
	for _, id := range ids {
		for node := uint64(1); node <= 3; node++ {
			g.nodes[node].spawn(id)
		}
	}
	return ids
}

// TestIdleTabletsCostNothing: idle tablets are not ticked and send nothing, however much time
// passes.
func TestIdleTabletsCostNothing(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	ids := append(g.add(40), groupTablet)
	for _, id := range ids {
		g.elect(id, 1, 2, 3)
	}
	g.rest(1, 2, 3)
	for _, id := range ids {
		for node := range g.nodes {
			if s := g.status(node, id); !s.Quiescent || s.LeaderNode == 0 {
				t.Errorf("tablet %d on node %d: %v", id, node, s)
			}
		}
	}
	before, _ := g.nodes[1].ticker.Stats()
	sent := g.messages()
	for range 1000 {
		g.tick(1, 2, 3)
	}
	if after, _ := g.nodes[1].ticker.Stats(); after != before || g.messages() != sent {
		t.Errorf("%d quiescent tablets: %d ticks and %d messages in 1000 intervals", len(ids),
			after-before, g.messages()-sent)
	}
	g.write(groupTablet, "a", "1") // a request wakes its tablet, and no other
	if _, awake := g.nodes[g.leader(groupTablet)].ticker.Stats(); awake != 1 {
		t.Errorf("one tablet is used, %d are awake", awake)
	}
	g.rest(1, 2, 3)
}

// TestSuspicionWakes: when the node of a quiescent group's leader is believed dead, another replica
// leads without waiting; without a suspicion, a request to a follower is enough.
func TestSuspicionWakes(t *testing.T) {
	for _, suspected := range []bool{true, false} {
		t.Run(fmt.Sprintf("suspected=%v", suspected), func(t *testing.T) {
			g := newGroup(t, 3, 3, 0)
			old := g.elect(groupTablet, 1, 2, 3)
			g.write(groupTablet, "a", "1")
			g.rest(1, 2, 3)
			g.nodes[old].stop(groupTablet)
			rest := g.others(old)
			for range 100 {
				g.tick(rest...)
			}
			if !g.asleep(rest...) {
				t.Error("somebody woke for no reason")
			}
			if suspected {
				for i := len(rest) - 1; i >= 0; i-- { // the candidate is notified last
					g.nodes[rest[i]].ticker.Suspect(old)
					g.status(rest[i], groupTablet)
				}
				if lead := g.leader(groupTablet, old); lead != rest[0] { // without a tick
					t.Errorf("node %d leads", lead)
				}
			} else {
				g.at(rest[0], groupTablet, getOf(g.take(1), "a"))
				ticks := 0
				g.wait("an election", func() bool {
					g.tick(rest...)
					ticks++
					return g.status(rest[0], groupTablet).Leader ||
						g.status(rest[1], groupTablet).Leader
				})
				if ticks > 6*group.ElectionTicks {
					t.Errorf("%d ticks until the election", ticks)
				}
			}
			if got := g.read(groupTablet, "a", old); got != "1" {
				t.Errorf("a is %q, want 1", got)
			}
			if suspected { // a dead node's replica does not delay quiescence
				g.rest(rest...)
			}
		})
	}
}

// TestRestartedReplicas: a quiescent group readmits a restarted replica, leader or not; and all may
// restart.
func TestRestartedReplicas(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	for node := uint64(1); node <= 3; node++ {
		g.rest(1, 2, 3)
		g.nodes[node].stop(groupTablet)
		g.nodes[node].spawn(groupTablet)
		g.wait("it knows a leader", func() bool {
			g.tick(1, 2, 3)
			return g.status(node, groupTablet).LeaderNode != 0
		})
	}
	for node := uint64(1); node <= 3; node++ {
		g.nodes[node].stop(groupTablet)
	}
	for node := uint64(1); node <= 3; node++ {
		g.nodes[node].spawn(groupTablet)
	}
	g.elect(groupTablet, 1, 2, 3)
	if got := g.read(groupTablet, "a"); got != "1" {
		t.Errorf("a is %q, want 1", got)
	}
}

// TestGarbageIsDropped: no message, whatever its content, ends a replica.
func TestGarbageIsDropped(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	lead := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "1")
	index := g.even(groupTablet, 1, 2, 3)
	term := g.status(lead, groupTablet).Term
	random := rand.New(rand.NewPCG(1, 2))
	some := func(near uint64) *uint64 {
		return proto.Uint64([]uint64{
			0, 1, near - 1, near, near + 1, near + 1000, 1 << 62,
		}[random.IntN(7)])
	}
	for i := range 20_000 {
		to := uint64(random.IntN(3) + 1)
		from := uint64(random.IntN(5))
		m := &raftpb.Message{
			Type: raftpb.MessageType(random.IntN(24)).Enum(), From: &from, To: &to,
			Term:  proto.Uint64([]uint64{0, term - 1, term}[random.IntN(3)]),
			Index: some(index), LogTerm: some(term), Commit: some(index), RejectHint: some(index),
			Context: make([]byte, random.IntN(10)),
			Reject:  proto.Bool(random.IntN(2) == 0), Vote: some(2),
		}
		if m.GetType() == raftpb.MsgApp && m.GetTerm() == term {
			m.Index = proto.Uint64(index + 5) // an index that fits would be the leader's own message
		}
		for range random.IntN(3) {
			m.Entries = append(m.Entries, &raftpb.Entry{
				Index: some(index), Term: some(term), Data: []byte("x"),
				Type: raftpb.EntryType(random.IntN(3)).Enum(),
			})
		}
		if m.GetType() == raftpb.MsgTimeoutNow || m.GetType() == raftpb.MsgAppResp {
			continue // not garbage: a peer may send it
		}
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			data = data[:random.IntN(len(data))]
		}
		Receive(g.nodes[to].system, g.nodes[to].port(groupTablet).PID(), &wire.RaftMessage{
			TabletId: uint64(random.IntN(2) + 2), FromNode: from, FromReplica: from, ToNode: to,
			ToReplica: to, Message: data, Quiesce: i%7 == 0,
		})
		if i%1000 == 0 {
			g.status(to, groupTablet)
		}
	}
	g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "a", "2")
	if got := g.read(groupTablet, "a"); got != "2" {
		t.Errorf("a is %q, want 2", got)
	}
}

// TestOnlyReplicaIsNotTicked: a tablet with a single replica needs no ticks and sends nothing.
func TestOnlyReplicaIsNotTicked(t *testing.T) {
	g := newGroup(t, 1, 1, 0)
	g.leader(groupTablet) // without a tick
	g.write(groupTablet, "a", "1")
	if _, awake := g.nodes[1].ticker.Stats(); awake != 0 || g.messages() != 0 {
		t.Errorf("%d awake, %d messages", awake, g.messages())
	}
	if _, _, _, ok := g.nodes[1].alone.Confirmed(); !ok {
		t.Error("the only voter does not confirm its leadership")
	}
}

// BenchmarkIdleTablets measures the CPU share of a thousand idle tablets on three nodes.
func BenchmarkIdleTablets(b *testing.B) {
	g := newGroup(b, 3, 3, DefaultTick)
	ids := g.add(1000)
	for _, id := range ids {
		g.leader(id)
	}
	g.wait("all sleep", func() bool { return g.asleep(1, 2, 3) })
	b.ResetTimer()
	cpu, sent := cpuTime(), g.messages()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for range b.N {
		<-second.C
	}
	b.ReportMetric(100*(cpuTime()-cpu).Seconds()/b.Elapsed().Seconds(), "%core")
	b.ReportMetric(float64(g.messages()-sent), "messages")
}
