package tablet

import (
	"errors"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// TestNoSnapshotOfHalfAReplica: a snapshot that waited its turn is not taken of a range
// that is being filled just then: the state there is the old one's, the rows are
// neither's.
func TestNoSnapshotOfHalfAReplica(t *testing.T) {
	source, here := newSource(t, sentDescriptor()), newSite(t, "")
	before := here.old()
	a, err := here.arrive(source.pieces(1 << 20))
	if err != nil {
		t.Fatal(err)
	}
	between := 0
	err = a.install(&installer{store: here.store, logs: here.logs, cut: func(step string) error {
		if step == "log" || step == "fill" || step == "flip" {
			between++
			if c, err := captureSnapshot(here.store, sentTablet); err == nil {
				t.Errorf("before %q: a snapshot as of entry %d, of %d entries", step, c.applied.Index, len(here.contents(c.state.Tablet)))
				c.snap.Close()
			} else if !errors.Is(err, errReplaced) {
				t.Error(err)
			}
		}
		return nil
	}}, before)
	if err != nil || between == 0 {
		t.Fatal(between, err)
	}
	here.checkInstalled(source.contents(sentDescriptor()))
}

// TestRefusedSnapshotAsksFirst: a leader that knows nothing of a replica yet, and whose
// snapshot was refused because the last leader's is still arriving there, asks the
// replica where it is: what it has by then may do, and a second snapshot be needless. If
// it is not, the answer says so, and another one is sent.
func TestRefusedSnapshotAsksFirst(t *testing.T) {
	node := leaderNode(t, 0)
	tablet := &Tablet{node: node, sending: map[uint64]*snapshotJob{}}
	tablet.cfg.Logger = slog.New(slog.DiscardHandler)
	step := func(m *raftpb.Message) *raftpb.Message {
		t.Helper()
		m.From, m.To, m.Term = proto.Uint64(2), proto.Uint64(1), proto.Uint64(node.BasicStatus().GetTerm())
		if err := node.Step(m); err != nil {
			t.Fatal(err)
		}
		rd := node.Ready()
		node.Advance(rd)
		if len(rd.Messages) != 1 {
			t.Fatalf("%d messages: %v", len(rd.Messages), rd.Messages)
		}
		return rd.Messages[0]
	}
	refuses := func(index, has uint64) *raftpb.Message {
		return &raftpb.Message{Type: raftpb.MsgAppResp.Enum(), Index: &index, Reject: proto.Bool(true), RejectHint: &has}
	}
	if m := step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()}); m.GetType() != raftpb.MsgSnap {
		t.Fatalf("the replica has no entry of the log, and gets %v", m)
	}
	tablet.sending[2] = &snapshotJob{index: 10}
	tablet.endSnapshot(&snapshotSent{to: 2, err: ErrSnapshotRefused})
	if node.HasReady() || len(tablet.sending) != 0 {
		t.Error("the next one does not wait")
	}
	m := step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()})
	if m.GetType() != raftpb.MsgApp {
		t.Fatalf("after the refusal: %v", m)
	}
	if m := step(refuses(m.GetIndex(), 3)); m.GetType() != raftpb.MsgSnap {
		t.Fatalf("the replica lacks as much as before, and gets %v", m)
	}
	tablet.endSnapshot(&snapshotSent{to: 2, err: ErrSnapshotRefused})
	m = step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum()})
	if m = step(&raftpb.Message{Type: raftpb.MsgAppResp.Enum(), Index: proto.Uint64(m.GetIndex())}); m.GetType() != raftpb.MsgApp {
		t.Fatalf("the replica has the last leader's by now, and gets %v", m)
	}
	if s := node.Status().Progress[2]; s.State != tracker.StateReplicate {
		t.Errorf("the learner's state is %v", s)
	}
}
