package group

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// leaderNode returns a RawNode that leads, with a learner that has answered and has no entries.
func leaderNode(t *testing.T) *raft.RawNode {
	t.Helper()
	storage := raft.NewMemoryStorage()
	err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: proto.Uint64(10), Term: proto.Uint64(5),
		ConfState: &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, Applied: 10,
		MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
	})
	if err != nil {
		t.Fatal(err)
	}
	work := func() {
		for node.HasReady() {
			rd := node.Ready()
			if err := storage.Append(rd.Entries); err != nil {
				t.Fatal(err)
			}
			node.Advance(rd)
		}
	}
	if err := node.Campaign(); err != nil {
		t.Fatal(err)
	}
	work()
	for range 100 {
		if err := node.Propose([]byte("e")); err != nil {
			t.Fatal(err)
		}
	}
	work()
	err = node.Step(&raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: proto.Uint64(2), To: proto.Uint64(1),
		Term: proto.Uint64(node.BasicStatus().GetTerm()), Index: proto.Uint64(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// The log keeps the entries that a lagging replica needs, and those behind a snapshot in progress,
// within bounds.
func TestLogWaitsWithinBounds(t *testing.T) {
	const visible, own = 100, 111 // own is the leader's last entry
	progress := func(visit func(uint64)) { visit(60); visit(own) }
	for _, c := range []struct {
		name               string
		truncated, visible uint64
		bytes, had         int // of entries behind the 60th, and before it
		sending            []uint64
		want               uint64
	}{
		{name: "it lags", truncated: 10, visible: visible, want: 60},
		{name: "it needs a snapshot anyway", truncated: 61, visible: visible, want: visible},
		{name: "many entries", truncated: 10, visible: 61 + laggardEntries, want: own},
		{name: "many entries that it has", truncated: 10, visible: 60 + laggardEntries, want: 60},
		{name: "many bytes", truncated: 10, visible: visible, bytes: laggardBytes + 1,
			want: visible},
		{name: "many bytes that it has", truncated: 10, visible: visible, had: laggardBytes + 1,
			want: 60},
		{name: "a snapshot is under way", truncated: 10, visible: visible,
			sending: []uint64{70, 30}, want: 30},
		{name: "a snapshot and many entries", truncated: 10, visible: 30 + snapshotEntries,
			sending: []uint64{30}, want: 30},
		{name: "a snapshot and too many", truncated: 10, visible: 31 + snapshotEntries,
			sending: []uint64{30}, want: 31 + snapshotEntries},
		{name: "a snapshot and too many bytes", truncated: 10, visible: visible,
			bytes: snapshotBytes + 1, sending: []uint64{30}, want: visible},
	} {
		r := retention{truncated: c.truncated}
		if c.bytes+c.had > 0 {
			for i := c.truncated + 1; i <= c.visible; i++ {
				r.sizes.append(i, map[uint64]int{11: c.had, 61: c.bytes}[i])
			}
		}
		for i, index := range c.sending {
			r.holdLog(uint64(i), index)
		}
		if got := r.unneededUpTo(c.visible, progress); got != c.want {
			t.Errorf("%s: needed from %d, want %d", c.name, got, c.want)
		}
	}
}

// TestLogSizes: the sizes follow appends, overwritten suffixes and truncation.
func TestLogSizes(t *testing.T) {
	var l logSizes
	for i := uint64(11); i < 31; i++ {
		l.append(i, 100)
	}
	l.append(25, 50) // a new leader's entry replaces 25 to 30
	within := func(index, entries uint64, bytes int, want uint64) {
		t.Helper()
		if got := l.lastWithin(index, entries, bytes); got != want {
			t.Errorf("%+v: %d of the entries up to %d are within %d and %d bytes, want %d", l, got,
				index, entries, bytes, want)
		}
	}
	within(25, 100, 300, 3)
	within(25, 2, 300, 2)
	within(20, 100, 99, 0)
	within(25, 20, 10_000, 20) // the sizes of earlier entries are unknown
	within(25, 100, 10_000, 25)
	if l.total != 14*100+50 {
		t.Errorf("%+v, want total 14*100+50", l)
	}
	l.truncate(20)
	if l.total != 4*100+50 || l.first != 21 {
		t.Errorf("%+v, want total 4*100+50 and first 21", l)
	}
	l.truncate(40)
	l.append(41, 7)
	within(60, 20, 0, 20)
	if l.total != 7 || l.first != 41 {
		t.Errorf("%+v, want total 7 and first 41", l)
	}
}

// TestRefusedSnapshotAsksFirst: a new leader knows nothing about a replica yet, and the replica
// refuses its snapshot because the previous leader's is still arriving. The leader then probes the
// replica: its log may suffice by then, and a second snapshot be needless. If it does not, the
// answer says so, and another snapshot is sent.
func TestRefusedSnapshotAsksFirst(t *testing.T) {
	node := leaderNode(t)
	g := &Group{raft: node}
	step := func(m *raftpb.Message) *raftpb.Message {
		t.Helper()
		m.From, m.To, m.Term = proto.Uint64(2), proto.Uint64(1),
			proto.Uint64(node.BasicStatus().GetTerm())
		if err := node.Step(m); err != nil {
			t.Fatal(err)
		}
		rd := node.Ready()
		node.Advance(rd)
		if len(rd.Messages) != 1 {
			t.Fatalf("%d messages, want 1: %v", len(rd.Messages), rd.Messages)
		}
		return rd.Messages[0]
	}
	refuses := func(index, has uint64) *raftpb.Message {
		return &raftpb.Message{
			Type: raftpb.MsgAppResp.Enum(), Index: &index, Reject: proto.Bool(true),
			RejectHint: &has,
		}
	}
	if m := step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()}); m.GetType() != raftpb.MsgSnap {
		t.Fatalf("the replica has no entry of the log, and gets %v", m)
	}
	g.retention.holdLog(2, 10)
	g.SnapshotEnded(2, true)
	if node.HasReady() || len(g.retention.snapshots) != 0 {
		t.Error("the next one does not wait")
	}
	m := step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()})
	if m.GetType() != raftpb.MsgApp {
		t.Fatalf("after the refusal: %v", m)
	}
	if m := step(refuses(m.GetIndex(), 3)); m.GetType() != raftpb.MsgSnap {
		t.Fatalf("the replica lacks as much as before, and gets %v", m)
	}
	g.SnapshotEnded(2, true)
	m = step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()})
	if m = step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(),
		Index: proto.Uint64(m.GetIndex())}); m.GetType() != raftpb.MsgApp {
		t.Fatalf("the replica has the last leader's by now, and gets %v", m)
	}
	if s := node.Status().Progress[2]; s.State != tracker.StateReplicate {
		t.Errorf("the learner's state is %v", s)
	}
}
