package tablet

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

func rawWrite(row, value string) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_RawWrite{RawWrite: &pb.RawWriteRequest{Writes: put(row, value)}},
	}
}

// raw returns the store's entry of the cell.
func raw(t *testing.T, s *store.Store, row string) string {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	value, _, err := snap.Raw(mvcc.Cell{Table: 16, Row: row, Column: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}

// TestSeenIsInTheLog: every visible effect is of an entry that is synced in the log, and a tablet
// can be opened with the present state: the log commits all applied entries. Therefore effects need
// no sync.
func TestSeenIsInTheLog(t *testing.T) {
	r := newRig(t, store.Options{Dir: t.TempDir()})
	for i := range 100 {
		value := fmt.Sprint(i)
		answer := r.start(2, rawWrite("r", value))
		for raw(t, r.store, "r") != value {
		}
		opens(t, r.store)
		await(t, answer)
	}
}

// opens checks that a tablet can be opened with the store's state.
func opens(t *testing.T, s *store.Store) {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	a, ok, err := snap.Applied(2)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	log, err := s.OpenLog(2)
	if err != nil {
		t.Fatal(err)
	}
	if last, err := log.LastIndex(); last < a.Index || err != nil {
		t.Fatalf("%d is applied, and the log ends at %d: %v", a.Index, last, err)
	}
	log.SetApplied(a.Index)
	if hard, _, err := log.InitialState(); hard.GetCommit() < a.Index || err != nil {
		t.Fatalf("the log commits %d, and %d is applied: %v", hard.GetCommit(), a.Index, err)
	}
}

// TestOneSyncAWrite: a write of a group of one voter costs one append and so one sync: its effects
// are not synced, and the commit index is written with a later append.
func TestOneSyncAWrite(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, rawWrite("r", "first"))
	appends := func() uint64 {
		if err := r.logs.Barrier(); err != nil {
			t.Fatal(err)
		}
		log, _ := r.logs.Stats()
		return uint64(log.Batches.Sum)
	}
	for i := range 10 {
		before := appends()
		r.do(2, rawWrite("r", fmt.Sprint(i)))
		if n := appends() - before; n != 1 {
			t.Errorf("a write needs %d appends, want 1", n)
		}
	}
}

// TestOneSyncAnEntry: each replica syncs its log once for an entry. The message that brings followers
// the commit index adds nothing to their logs, nor does its acknowledgment.
func TestOneSyncAnEntry(t *testing.T) {
	g := newGroup(t, 3, 3, 0)
	leader := g.elect(groupTablet, 1, 2, 3)
	g.write(groupTablet, "r", "first", g.others(leader)...)
	g.even(groupTablet, 1, 2, 3)
	before, counted := map[uint64]uint64{}, map[uint64]uint64{}
	for id, m := range g.nodes {
		log, _ := m.logs.Stats()
		before[id], counted[id] = m.store.Stats().Log.Batches, log.Batches.Count()
	}
	const writes = 10
	for i := range writes {
		g.write(groupTablet, "r", fmt.Sprint(i), g.others(leader)...)
		g.even(groupTablet, 1, 2, 3)
	}
	for id, m := range g.nodes {
		if err := m.logs.Barrier(); err != nil {
			t.Fatal(err)
		}
		if n := m.store.Stats().Log.Batches - before[id]; n != writes {
			t.Errorf("node %d has synced its log %d times for %d entries", id, n, writes)
		}
		if log, _ := m.logs.Stats(); log.Batches.Count()-counted[id] != writes {
			t.Errorf("node %d counts %d batches for %d entries", id, log.Batches.Count()-counted[id], writes)
		}
	}
}

// TestLongAndShortEntries: short and long entries, and some with changes other than rows,
// sequential and concurrent; the tablet opened afterwards has the effects of the last ones.
func TestLongAndShortEntries(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	want := map[string]string{}
	var answers []<-chan result
	for i := range 60 {
		row, value := fmt.Sprint("r", i%7), fmt.Sprint(i)
		switch i % 5 {
		case 3:
			value += strings.Repeat("x", 512<<10)
		case 4:
			answers = append(answers, r.start(2,
				&pb.TabletRequest{Op: &pb.TabletRequest_Checksum{Checksum: &pb.ChecksumRequest{}}}))
		}
		want[row] = value
		if written := r.start(2, rawWrite(row, value)); i%9 == 0 {
			await(t, written)
		} else {
			answers = append(answers, written)
		}
	}
	for _, a := range answers {
		await(t, a)
	}
	opens(t, r.store)
	reopen(t, r, 2, 0)
	for row, value := range want {
		if got := raw(t, r.store, row); got != value {
			t.Errorf("%s has %d bytes, want %d", row, len(got), len(value))
		}
	}
	r.do(2, rawWrite("r", "after"))
}

// TestTermEndsWhileWritten: a leader whose term ends while its entry is being written reports an
// unknown outcome; as the only voter it leads again, and the entry is applied once.
func TestTermEndsWhileWritten(t *testing.T) {
	g := newGroup(t, 1, 1, 0)
	g.elect(groupTablet, 1)
	g.write(groupTablet, "a", "1")
	m := g.nodes[1]
	before := g.status(1, groupTablet)
	release := m.hold()
	start := g.take(1)
	written := g.tell(1, groupTablet, onePhaseOf(start, put("a", "2")))
	g.wait("the entry is on its way", func() bool {
		return g.status(1, groupTablet).Proposals > before.Proposals
	})
	vote, err := proto.Marshal(&raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: proto.Uint64(9), To: proto.Uint64(1),
		Term:    proto.Uint64(before.Term + 5),
		LogTerm: proto.Uint64(before.Term + 4), Index: proto.Uint64(1),
		Context: []byte("CampaignTransfer"),
	})
	if err != nil {
		t.Fatal(err)
	}
	Receive(m.system, m.port(groupTablet).PID(),
		&wire.RaftMessage{
			TabletId: groupTablet, FromReplica: 9, ToReplica: 1, FromNode: 9, ToNode: 1,
			Message: vote,
		})
	if code := g.code(written); code != pb.Error_CODE_UNKNOWN {
		t.Errorf("the write is answered with %v, want UNKNOWN", code)
	}
	release()
	g.elect(groupTablet, 1)
	if got := g.read(groupTablet, "a"); got != "2" {
		t.Errorf("a has %q, want 2", got)
	}
	m.stop(groupTablet)
	m.spawn(groupTablet)
	g.elect(groupTablet, 1)
	if got := g.read(groupTablet, "a"); got != "2" {
		t.Errorf("a has %q after a restart, want 2", got)
	}
	g.write(groupTablet, "a", "3")
}

// TestAsManyGoEarly: while an entry is being written, a batch of as many operations as that entry
// holds is evaluated and proposed behind it; a smaller batch waits, and so do operations behind
// those two.
func TestAsManyGoEarly(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	proposed := func(n uint64) {
		r.until(2, fmt.Sprint(n, " are proposed"), func(s *pb.StatusResponse) bool {
			return s.Proposals >= n
		})
	}
	inside := r.restart(2)
	release := r.hold()
	answers := []<-chan result{r.start(2, rawWrite("a", "1"))}
	proposed(1)
	answers = append(answers, r.start(2, rawWrite("a", "2"))) // as many as in the entry before
	proposed(2)
	for range 3 {
		answers = append(answers, r.start(2, rawWrite("a", "3")))
	}
	held, releaseNext := holdNext(r.logs, &writers.Write{Append: &writers.Append{}}) // behind the first two
	release()
	<-held
	proposed(3)
	// fewer
	answers = append(answers, r.start(2, rawWrite("b", "4")), r.start(2, rawWrite("b", "4")))
	for _, a := range answers[:2] {
		await(t, a)
	}
	if n := r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}).GetStatus().Proposals; n != 3 {
		t.Errorf("%d are proposed, want 3", n)
	}
	answers = append(answers, r.start(2, rawWrite("b", "5")))
	proposed(4)
	releaseNext()
	for _, a := range answers[2:] {
		await(t, a)
	}
	r.do(2, getOf(r.take(1), "a")) // reads are not counted
	if inside.pipeline.taken != 3 || raw(t, r.store, "a") != "3" || raw(t, r.store, "b") != "5" {
		t.Errorf("%d in the last batch; %q, %q", inside.pipeline.taken, raw(t, r.store, "a"),
			raw(t, r.store, "b"))
	}
}
