package tablet

import (
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/store"
)

// leaderNode is a RawNode that leads, with a learner that has entries up to match.
func leaderNode(t *testing.T, match uint64) *raft.RawNode {
	t.Helper()
	storage := raft.NewMemoryStorage()
	err := storage.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: proto.Uint64(10), Term: proto.Uint64(5), ConfState: &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, Applied: 10, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 256,
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
		Type: raftpb.MsgAppResp.Enum(), From: proto.Uint64(2), To: proto.Uint64(1), Term: proto.Uint64(node.BasicStatus().GetTerm()), Index: &match,
	})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// The log keeps what a replica that lags still needs, and what comes behind a snapshot under way, but not for ever.
func TestLogWaitsWithinBounds(t *testing.T) {
	const visible = 100
	for _, c := range []struct {
		name               string
		truncated, visible uint64
		bytes              int
		sending            []uint64
		want               uint64
	}{
		{name: "it lags", truncated: 10, visible: visible, want: 60},
		{name: "it needs a snapshot anyway", truncated: 61, visible: visible, want: visible},
		{name: "many entries", truncated: 10, visible: 11 + laggardEntries, want: 11 + laggardEntries},
		{name: "many bytes", truncated: 10, visible: visible, bytes: laggardBytes + 1, want: visible},
		{name: "a snapshot is under way", truncated: 10, visible: visible, sending: []uint64{70, 30}, want: 30},
		{name: "a snapshot and many entries", truncated: 10, visible: 11 + laggardEntries, sending: []uint64{30}, want: 30},
		{name: "a snapshot and too many", truncated: 10, visible: 11 + sendingEntries, sending: []uint64{30}, want: 11 + sendingEntries},
		{name: "a snapshot and too many bytes", truncated: 10, visible: visible, bytes: sendingBytes + 1, sending: []uint64{30}, want: visible},
	} {
		tablet := &Tablet{node: leaderNode(t, 60), visible: c.visible, truncated: c.truncated, sending: map[uint64]*snapshotJob{}}
		tablet.logSizes.total = c.bytes
		for i, index := range c.sending {
			tablet.sending[uint64(i)] = &snapshotJob{index: index}
		}
		if got := tablet.neededFrom(); got != c.want {
			t.Errorf("%s: needed from %d, want %d", c.name, got, c.want)
		}
	}
}

// logEntry is an entry of a new tablet's first term.
func logEntry(index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: proto.Uint64(store.InitialTerm), Type: raftpb.EntryNormal.Enum(), Data: data}
}
