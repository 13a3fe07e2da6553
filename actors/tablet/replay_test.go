package tablet

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// facts is a replica's complete state after its entries, except the index.
type facts struct {
	state *wire.TabletState
	store.Applied
	rows map[string]string
}

func (m *member) facts(tablet uint64) facts {
	m.g.tb.Helper()
	c, err := snapshot.Capture(m.store.SnapWithLocks(), tablet)
	if err != nil {
		m.g.tb.Fatal(err)
	}
	defer c.Snap.Close()
	f := facts{state: c.State, Applied: c.Applied, rows: map[string]string{}}
	f.Index, f.Term = 0, 0
	err = c.Snap.Cursor(snapshot.Rows(c.State.Tablet)).Each(func(key, value []byte) bool {
		f.rows[string(key)] = string(value)
		return true
	})
	if err != nil {
		m.g.tb.Fatal(err)
	}
	return f
}

func (f facts) check(t *testing.T, want facts) {
	t.Helper()
	if !proto.Equal(f.state, want.state) {
		t.Errorf("the state is %v, want %v", f.state, want.state)
	}
	if f.Applied != want.Applied {
		t.Errorf("the figures are %+v, want %+v", f.Applied, want.Applied)
	}
	for key := range want.rows {
		if have, ok := f.rows[key]; !ok || have != want.rows[key] {
			t.Errorf("%q has %d bytes (%v), want %d", key, len(have), ok, len(want.rows[key]))
		}
	}
	for key := range f.rows {
		if _, ok := want.rows[key]; !ok {
			t.Errorf("%q is there", key)
		}
	}
}

// tear mixes the present rows with those of an earlier state, as a crash of the machine may leave
// the effects behind a checkpoint.
func (m *member) tear(dice *rand.Rand, before, now facts) {
	m.g.tb.Helper()
	b := &store.Batch{}
	all := maps.Clone(before.rows)
	maps.Copy(all, now.rows)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		was, had := before.rows[key]
		if is, has := now.rows[key]; had == has && was == is || dice.IntN(2) == 0 {
			continue
		}
		if had {
			b.Put([]byte(key), []byte(was))
		} else {
			b.Delete([]byte(key))
		}
	}
	if err := m.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		m.g.tb.Fatal(err)
	}
}

// TestReplay: after a crash of its process a replica applies the entries behind its checkpoint
// again. Whatever part of their effects its store contains, and whatever else they changed, its
// state equals that before the crash: sizes are counted once, an entry of another epoch has no
// effect, locks are held.
func TestReplay(t *testing.T) {
	g := newGroupOnDisk(t, 1, 1, testTick)
	m := g.nodes[1]
	m.sums = NewChecksums(m.store, slog.New(slog.DiscardHandler))
	m.stop(groupTablet)
	m.spawn(groupTablet)
	for i := range 20 {
		g.write(groupTablet, fmt.Sprint("row", i), strings.Repeat("x", 100*i))
	}
	g.write(groupTablet, "long", strings.Repeat("x", 3<<20))
	if err := m.store.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	before := m.facts(groupTablet)
	sum := changeEverything(t, g)
	// An entry evaluated before the last change of the epoch and appended behind it.
	last := g.even(groupTablet, 1)
	m.stop(groupTablet)
	term := g.staleEntry(m, last+1)
	m.spawn(groupTablet)
	g.wait("the next term", func() bool {
		s := g.status(1, groupTablet)
		return s.GetLeader() && s.Term > term
	})
	g.write(groupTablet, "row3", "last")
	g.even(groupTablet, 1)
	now, image := m.facts(groupTablet), m.image()
	m.sums.Close()
	log, err := m.store.OpenLog(groupTablet)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := log.Checkpoint(); at >= sum.GetIndex() || err != nil {
		t.Fatalf("the checkpoint is at %d, and should not be at the checksum's %d: %v", at,
			sum.GetIndex(), err)
	}
	for seed := range uint64(6) {
		m.goBack(image)
		if seed > 0 { // else the whole state is ahead
			m.tear(rand.New(rand.NewPCG(seed, 1)), before, now)
		}
		m.sums = NewChecksums(m.store, slog.New(slog.DiscardHandler))
		m.spawn(groupTablet)
		g.leader(groupTablet)
		g.even(groupTablet, 1)
		m.facts(groupTablet).check(t, now)
		if c := g.do(groupTablet, checksumOf(sum.GetId())).GetChecksum(); c.GetDone() ||
			c.GetComputing() || c.GetApplied() < sum.GetIndex() {
			t.Errorf("an entry that is applied once more has a checksum: %v", c)
		}
		if got := g.at(1, groupTablet, getOf(g.take(1),
			"locked")).GetGet().GetResults()[0]; got.GetStatus() != pb.Status_STATUS_LOCKED {
			t.Errorf("the lock is gone: %v", got)
		}
		g.write(groupTablet, "after", "1")
		began := g.do(groupTablet, checksumOf(0)).GetChecksum()
		g.wait("a checksum", func() bool {
			return g.do(groupTablet, checksumOf(began.GetId())).GetChecksum().GetDone()
		})
		m.stop(groupTablet)
		m.sums.Close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	m.sums = nil
}

// changeEverything applies entries of all kinds and returns the id of a checksum.
func changeEverything(t *testing.T, g *cluster) *pb.ChecksumResponse {
	t.Helper()
	for i := range 10 {
		g.write(groupTablet, fmt.Sprint("row", 2*i), strings.Repeat("y", 10*i))
		g.do(groupTablet, onePhaseOf(g.take(1), remove(fmt.Sprint("row", 2*i+1))))
	}
	g.write(groupTablet, "long", "short")
	start, commit := g.take(1), g.take(1)
	g.do(groupTablet, prewriteOf(start, "committed", "v"))
	g.do(groupTablet, commitOf(start, commit, "committed"))
	g.do(groupTablet, rawWrite("raw", "v"))
	bound := g.take(1)
	g.do(groupTablet, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	g.do(groupTablet, prewriteOf(g.take(1), "locked", "v"))
	g.change(groupTablet, step(addLearner, 2))
	g.write(groupTablet, "row1", "again")
	sum := g.do(groupTablet, checksumOf(0)).GetChecksum()
	g.wait("the checksum", func() bool {
		return g.do(groupTablet, checksumOf(sum.GetId())).GetChecksum().GetDone()
	})
	g.write(groupTablet, "row5", "again")
	g.change(groupTablet, step(dismiss, 2))
	g.write(groupTablet, "row7", "and again")
	return sum
}

// staleEntry appends an entry of the first epoch to the log of a node whose replica is stopped, and
// returns its term.
func (g *cluster) staleEntry(m *member, index uint64) (term uint64) {
	g.tb.Helper()
	log, err := m.store.OpenLog(groupTablet)
	if err != nil {
		g.tb.Fatal(err)
	}
	hard, _, err := log.InitialState()
	if err != nil {
		g.tb.Fatal(err)
	}
	cell := mvcc.Cell{Table: 16, Row: "stale", Column: "c"}
	key := store.AppendKey(nil, mvcc.GroupRaw, cell, 9)
	data, err := proto.Marshal(&wire.Command{
		Epoch: 1, Effects: []*wire.Effect{{Key: key, Value: []byte("v")}},
	})
	if err != nil {
		g.tb.Fatal(err)
	}
	entry := logEntry(index, data)
	entry.Term = hard.Term
	appendTo(g.tb, m.store, groupTablet, []*raftpb.Entry{entry}, nil)
	return hard.GetTerm()
}

// TestSplitReplayed: a crash after a split was applied and before the log contains the new tablet.
// The split is applied again: both tablets exist with their rows and locks, whatever the store
// contains of the new one.
func TestSplitReplayed(t *testing.T) {
	g := newGroupOnDisk(t, 1, 1, testTick)
	m := g.nodes[1]
	g.write(groupTablet, "a", "1")
	g.write(groupTablet, "x", "1")
	if err := m.store.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	g.write(groupTablet, "b", "2")
	g.write(groupTablet, "y", "2")
	g.do(groupTablet, prewriteOf(g.take(1), "z", "3"))
	last := g.even(groupTablet, 1)
	release := m.holdApplies()
	split := g.tell(1, groupTablet, splitOf("m", 3))
	log, err := m.store.OpenLog(groupTablet)
	if err != nil {
		t.Fatal(err)
	}
	g.wait("the split is in the log", func() bool { n, _ := log.LastIndex(); return n > last })
	image := t.TempDir()
	copyDir(t, filepath.Join(m.dir, "log"), filepath.Join(image, "log"))
	release()
	if code := g.code(split); code != pb.Error_CODE_UNSPECIFIED {
		t.Fatalf("the split ended with %v, want no error", code)
	}
	g.leader(3)
	m.imageState(image)
	copyDir(t, m.dir, image) // everything except the log
	m.goBack(image)
	stored, err := snapshot.StoredReplicas(m.store)
	if len(stored) != 1 || stored[0].Tablet != groupTablet || stored[0].Descriptor.Epoch != 1 ||
		err != nil {
		t.Fatalf("after the crash the replicas are %v: %v", stored, err)
	}
	m.spawn(groupTablet)
	g.leader(3)
	g.leader(groupTablet)
	for _, c := range []struct {
		tablet     uint64
		row, value string
	}{{groupTablet, "a", "1"}, {groupTablet, "b", "2"}, {3, "x", "1"}, {3, "y", "2"}} {
		if got := g.read(c.tablet, c.row); got != c.value {
			t.Errorf("%s is %q, want %q", c.row, got, c.value)
		}
	}
	if got := g.at(1, 3, getOf(g.take(1),
		"z")).GetGet().GetResults()[0]; got.GetStatus() != pb.Status_STATUS_LOCKED {
		t.Errorf("the lock is gone: %v", got)
	}
	g.write(3, "y", "3")
	m.stopAll()
	want := []facts{m.facts(groupTablet), m.facts(3)}
	m.goBack(m.image()) // with entries of both behind the barrier
	m.spawn(groupTablet)
	m.spawn(3)
	for i, id := range []uint64{groupTablet, 3} {
		g.leader(id)
		g.even(id, 1)
		have := m.facts(id)
		// the leader may have measured it since
		have.Bytes, have.Rough = want[i].Bytes, want[i].Rough
		have.check(t, want[i])
	}
}

// TestOldVoterAfterCrash: the only voter of a group crashes after two others have joined and
// restarts with the configuration of its checkpoint, in which it could elect itself. Its log must
// tell it that there are changes that it has not applied again yet. Catches BROKEN=forget_commit.
func TestOldVoterAfterCrash(t *testing.T) {
	g := newGroupOnDisk(t, 3, 1, testTick)
	old := g.nodes[1]
	g.write(groupTablet, "a", "1")
	for _, kind := range []pb.ReplicaChange_Kind{addLearner, promote} {
		for node := uint64(2); node <= 3; node++ {
			g.change(groupTablet, step(kind, node))
			g.caughtUp(groupTablet, node)
		}
	}
	before := g.status(1, groupTablet)
	image := old.image()
	g.cut(1)
	for _, id := range g.others(1) {
		g.nodes[id].ticker.Suspect(1) // the only way a quiescent group learns of it
	}
	old.goBack(image)
	old.spawn(groupTablet)
	lead := g.leader(groupTablet, 1)
	g.write(groupTablet, "a", "2", 1)
	// Node 1 was one of two voters at the last change.
	g.wait("it has applied what it knows", func() bool {
		return len(g.status(1, groupTablet).GetTablet().GetReplicas()) == 3
	})
	if s := g.status(1, groupTablet); s.GetLeader() || s.GetLastIndex() > before.GetLastIndex() {
		t.Fatalf("FORGOT-COMMIT: cut off, it has led with entries up to %d, after %d",
			s.GetLastIndex(), before.GetLastIndex())
	}
	g.cut(0)
	for _, id := range g.others(1) {
		g.nodes[id].ticker.Alive(1)
	}
	g.even(groupTablet, 1, 2, 3)
	if got := g.stored(1, "a"); got != "2" {
		t.Errorf("a is %q, and %d leads", got, lead)
	}
}

// TestFollowerAfterCrash: a crashed follower of a quiescent group learns the commit index again.
func TestFollowerAfterCrash(t *testing.T) {
	g := newGroupOnDisk(t, 3, 3, testTick)
	for i := range 10 {
		g.write(groupTablet, "a", fmt.Sprint(i))
	}
	index := g.even(groupTablet, 1, 2, 3)
	g.wait("rest", func() bool { return g.asleep(1, 2, 3) })
	m := g.nodes[g.others(g.leader(groupTablet))[0]]
	m.goBack(m.image())
	m.spawn(groupTablet)
	if at := g.even(groupTablet, 1, 2, 3); at < index {
		t.Errorf("they have applied %d, and had %d", at, index)
	}
	if got := g.stored(m.id, "a"); got != "9" {
		t.Errorf("a is %q, want 9", got)
	}
}

// TestReopenedAfterPanic: a replica reopened within the process continues from its applied state,
// although the commit index in its log is behind it; the next entry stores a newer one.
func TestReopenedAfterPanic(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.failed = make(chan error, 1)
	for i := range 20 {
		r.do(2, rawWrite("r", fmt.Sprint(i)))
	}
	applied := r.visible(2).AppliedIndex
	call, _ := r.envelope(nil) // a missing request panics
	r.system.Root.Send(r.port(2).PID(), &reads.Blocked{Reads: []reads.BlockedRead{{Call: call, Met: &mvcc.Lock{}}}})
	if err := <-r.failed; err == nil {
		t.Fatal("no panic")
	}
	log, err := r.store.OpenLog(2)
	if err != nil {
		t.Fatal(err)
	}
	if hard, _, err := log.InitialState(); hard.GetCommit() >= applied || err != nil {
		t.Fatalf("%d is committed in the log, and %d applied: %v", hard.GetCommit(), applied, err)
	}
	r.restart(2)
	if got := raw(t, r.store, "r"); got != "19" {
		t.Errorf("r is %q, want 19", got)
	}
	if hard, _, err := log.InitialState(); hard.GetCommit() < applied || err != nil {
		t.Errorf("an entry is behind %d, and the log commits %d: %v", applied, hard.GetCommit(),
			err)
	}
	r.do(2, rawWrite("r", "after"))
	r.visible(2)
	if got := raw(t, r.store, "r"); got != "after" {
		t.Errorf("r is %q, want after", got)
	}
}

// TestNoSnapshotBeforeReplay: no snapshot is taken of a store that may be ahead of the applied
// index. Uncommitted entries that another leader has replaced do not delay it.
func TestNoSnapshotBeforeReplay(t *testing.T) {
	const id = 3
	here := newRig(t, store.Options{InMemory: true})
	b := &store.Batch{}
	Bootstrap(b, &pb.TabletDescriptor{TabletId: id, Epoch: 1, EndUnbounded: true}, 1)
	if err := here.logs.Commit(b); err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for i := range uint64(10) {
		entries = append(entries, logEntry(store.InitialIndex+1+i, nil))
	}
	appendTo(t, here.store, id, entries,
		&raftpb.HardState{Term: proto.Uint64(store.InitialTerm)})
	tablet := newTablet(here.system, here.store, here.logs, here.readers, id, nil, Config{
		Snapshots: &snapshot.Sender{}, Logger: slog.New(slog.DiscardHandler),
	})
	tablet.self.pid = here.system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	if err := tablet.open(); err != nil {
		t.Fatal(err)
	}
	refused := func(visible uint64, want error) {
		t.Helper()
		if err := tablet.group.Applied(visible, store.InitialTerm, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := tablet.snapshotMetadata(); err != want {
			t.Errorf("with all up to %d visible: %v, want %v", visible, err, want)
		}
	}
	// appended is an entry of a new leader that replaces those from its index on.
	appended := func(index, before uint64) {
		t.Helper()
		e := &raftpb.Entry{Index: &index, Term: proto.Uint64(store.InitialTerm + 1)}
		tablet.group.Step(&group.Incoming{
			RaftMessage: &wire.RaftMessage{
				TabletId: id, FromNode: 2, FromReplica: 2, ToReplica: 1,
			},
			Raft: &raftpb.Message{
				Type: raftpb.MsgApp.Enum(), From: proto.Uint64(2), To: proto.Uint64(1),
				Term:  e.Term,
				Index: proto.Uint64(index - 1), LogTerm: &before, Entries: []*raftpb.Entry{e},
			},
		})
		if rd, _, err := tablet.group.Ready(); err != nil || len(rd.Append.Entries) != 1 {
			t.Fatal(rd, err)
		}
	}
	const last = store.InitialIndex + 10
	refused(last-1, raft.ErrSnapshotTemporarilyUnavailable)
	refused(last, nil)
	appended(last-4, store.InitialTerm)
	refused(last-6, raft.ErrSnapshotTemporarilyUnavailable)
	refused(last-5, nil)
	appended(last-3, store.InitialTerm+1)
	refused(last-5, nil)
	if err := here.logs.Barrier(); err != nil {
		t.Fatal(err)
	}
}
