package tablet

import (
	"fmt"
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

// The log keeps what a replica that lags still needs, and what comes behind a snapshot
// under way, but not for ever.
func TestLogWaitsWithinBounds(t *testing.T) {
	const visible, own = 100, 111 // own is the leader's last entry
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
		{name: "many bytes", truncated: 10, visible: visible, bytes: laggardBytes + 1, want: visible},
		{name: "many bytes that it has", truncated: 10, visible: visible, had: laggardBytes + 1, want: 60},
		{name: "a snapshot is under way", truncated: 10, visible: visible, sending: []uint64{70, 30}, want: 30},
		{name: "a snapshot and many entries", truncated: 10, visible: 30 + sendingEntries, sending: []uint64{30}, want: 30},
		{name: "a snapshot and too many", truncated: 10, visible: 31 + sendingEntries, sending: []uint64{30}, want: 31 + sendingEntries},
		{name: "a snapshot and too many bytes", truncated: 10, visible: visible, bytes: sendingBytes + 1, sending: []uint64{30}, want: visible},
	} {
		tablet := &Tablet{node: leaderNode(t, 60), visible: c.visible, truncated: c.truncated, sending: map[uint64]*snapshotJob{}}
		if c.bytes+c.had > 0 {
			for i := c.truncated + 1; i <= c.visible; i++ {
				tablet.logSizes.append(i, map[uint64]int{11: c.had, 61: c.bytes}[i])
			}
		}
		for i, index := range c.sending {
			tablet.sending[uint64(i)] = &snapshotJob{index: index}
		}
		if got := tablet.neededFrom(); got != c.want {
			t.Errorf("%s: needed from %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTruncatedToTheCheckpoint: the log keeps all behind the checkpoint, however much that is, and
// goes on being truncated after the next one.
func TestTruncatedToTheCheckpoint(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	write := func(n int) (first, last uint64) {
		t.Helper()
		var answers []<-chan result
		for i := range n {
			answers = append(answers, r.start(2, rawWrite("r", fmt.Sprint(i))))
			await(t, answers[i])
		}
		if err := r.logs.Barrier(); err != nil {
			t.Fatal(err)
		}
		log, err := r.store.OpenLog(2)
		if err != nil {
			t.Fatal(err)
		}
		if first, err = log.FirstIndex(); err != nil {
			t.Fatal(err)
		}
		if last, err = log.LastIndex(); err != nil {
			t.Fatal(err)
		}
		return first, last
	}
	checkpoint := uint64(store.InitialIndex)
	for range 3 {
		first, last := write(keptEntries + truncateEvery + 50)
		if first > checkpoint+1 {
			t.Fatalf("the log begins at %d, and the checkpoint is at %d", first, checkpoint)
		}
		if err := r.store.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		before := first
		if first, _ = write(1); first <= before || first > last-keptEntries+2 {
			t.Fatalf("after a checkpoint at %d the log begins at %d, and before it at %d", last, first, before)
		}
		checkpoint = last
	}
}

// logEntry is an entry of a new tablet's first term.
func logEntry(index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: proto.Uint64(store.InitialTerm), Type: raftpb.EntryNormal.Enum(), Data: data}
}
