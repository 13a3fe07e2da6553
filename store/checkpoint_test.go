package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
	"github.com/percolator-go/percolator/test/disk"
)

// at is the applied position of a tablet of these tests, and its state there.
func at(index uint64) (store.Applied, []byte) {
	return store.Applied{Index: index, Term: store.InitialTerm, Bytes: 7 * index},
		fmt.Appendf(nil, "as of %d", index)
}

// advance adds an entry to a tablet's log and commits its effects.
func advance(t testing.TB, s *store.Store, tablet, index uint64, value []byte) {
	t.Helper()
	appendTo(t, s, tablet, run(store.InitialTerm, index, index), hard(store.InitialTerm, index))
	commit(t, s, effectsOf(tablet, index, value))
}

func effectsOf(tablet, index uint64, value []byte) *store.Batch {
	b := new(store.Batch)
	applied, state := at(index)
	b.Put(fmt.Appendf(nil, "key %d.%d", tablet, index), value)
	b.PutTabletState(tablet, state)
	b.PutApplied(tablet, applied)
	return b
}

// wantFigures checks that a tablet is at an index.
func wantFigures(t *testing.T, s *store.Store, tablet, index uint64, when string) {
	t.Helper()
	snap := s.Snap()
	defer snap.Close()
	wantApplied, wantState := at(index)
	applied, _, err := snap.Applied(tablet)
	if err != nil || applied != wantApplied {
		t.Errorf("%s: tablet %d: %+v, %v, want %+v", when, tablet, applied, err, wantApplied)
	}
	if state, _, err := snap.TabletState(tablet); err != nil || !bytes.Equal(state, wantState) {
		t.Errorf("%s: tablet %d: state %q, %v, want %q", when, tablet, state, err, wantState)
	}
}

func beginAt(t testing.TB, s *store.Store, tablet, index uint64) {
	t.Helper()
	b := effectsOf(tablet, index, []byte("begin"))
	b.InitialLog(tablet, index, store.InitialTerm)
	commit(t, s, b)
}

// A tablet is opened at its checkpoint, also where more of its state has survived, with a gap: its
// entries are applied to the state that they were applied to before. Catches
// BROKEN=replay_from_applied.
func TestOpenedAsOfTheCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, memTable(2<<20))
	beginAt(t, s, 3, 10)
	then, err := disk.Files(filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "db", "00002.mem")
	index := uint64(10)
	for begun := false; !begun; {
		index++
		advance(t, s, 3, index, make([]byte, 200<<10))
		_, err := os.Stat(second)
		begun = err == nil
	}
	index++
	advance(t, s, 3, index, []byte("behind the hole"))
	lost := killed(t, dir)
	b, err := os.ReadFile(filepath.Join(lost, "db", "00002.mem"))
	if err != nil {
		t.Fatal(err)
	}
	// of the log files, the second was written, and the first only up to the checkpoint's sync
	then["00002.mem"] = b
	if err := disk.Replace(filepath.Join(lost, "db"), then); err != nil {
		t.Fatal(err)
	}
	s = open(t, lost, memTable(2<<20))
	snap := s.Snap()
	defer snap.Close()
	if applied, _, err := snap.Applied(3); applied.Index != 10 || err != nil {
		t.Errorf("AHEAD: the tablet is applied up to %d, %v, and its checkpoint is at 10",
			applied.Index, err)
	}
	wantFigures(t, s, 3, 10, "after the power loss")
	if v, ok, err := snap.Get(fmt.Appendf(nil, "key 3.%d",
		index)); string(v) != "behind the hole" || !ok || err != nil {
		t.Errorf("this test shows nothing: %q, %v", v, err)
	}
	if last, err := openLog(t, s, 3).LastIndex(); last != index || err != nil {
		t.Errorf("the log ends at %d, %v, want %d", last, err, index)
	}
}

// State covered by a checkpoint survives a power loss that leaves only the data synced for it.
// Catches BROKEN=checkpoint_unsynced.
func TestCheckpointIsDurable(t *testing.T) {
	dir := t.TempDir()
	var synced map[string][]byte
	capture := func() (err error) {
		synced, err = disk.Files(filepath.Join(dir, "db"))
		return err
	}
	s := open(t, dir, func(o *store.Options) { store.BeforeSync(o, capture) })
	if err := capture(); err != nil {
		t.Fatal(err)
	}
	beginAt(t, s, 3, 10)
	for index := uint64(11); index <= 20; index++ {
		advance(t, s, 3, index, []byte("covered"))
	}
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	advance(t, s, 3, 21, []byte("not covered"))
	lost := killed(t, dir)
	if err := disk.Replace(filepath.Join(lost, "db"), synced); err != nil {
		t.Fatal(err)
	}
	s = open(t, lost)
	wantFigures(t, s, 3, 20, "after the power loss")
	snap := s.Snap()
	defer snap.Close()
	for index := uint64(11); index <= 20; index++ {
		if v, ok, err := snap.Get(fmt.Appendf(nil, "key 3.%d", index)); string(v) != "covered" ||
			err != nil {
			t.Errorf("UNSYNCED: of entry %d there is %q, %t, %v", index, v, ok, err)
		}
	}
}

// The few old entries of an idle tablet are moved, so that the segments that a busy one has filled
// since serve again.
func TestIdleTabletFreesTheLog(t *testing.T) {
	s := open(t, "")
	beginAt(t, s, 3, 10)
	beginAt(t, s, 4, 10)
	for index := uint64(11); index <= 20; index++ {
		advance(t, s, 3, index, []byte("idle"))
	}
	for index := uint64(11); index <= 50; index++ { // eight segments of 1 MiB
		appendTo(t, s, 4, []*raftpb.Entry{entry(index, store.InitialTerm, make([]byte, 200<<10))},
			hard(store.InitialTerm, index))
		commit(t, s, effectsOf(4, index, nil))
	}
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats().Log; st.Segments < 8 {
		t.Fatalf("this test shows nothing: %+v", st)
	}
	b := new(raftlog.Batch)
	b.Truncate(4, 48) // from here on the worker may free segments too
	if err := s.Append(b); err != nil {
		t.Fatal(err)
	}
	store.MaintainLog(s)
	if st := s.Stats().Log; st.Segments > 3 {
		t.Errorf("%+v, want at most 3 segments", st)
	}
	entries, err := openLog(t, s, 3).Entries(11, 21, 1<<20)
	if err != nil || len(entries) != 10 || string(entries[9].Data) != fmt.Sprintf("%d.20", store.InitialTerm) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// TestUnreadableEntryIsLogged: an unreadable entry that keeps the log's oldest segment is logged as an
// error, and once although the worker meets it every second.
func TestUnreadableEntryIsLogged(t *testing.T) {
	dir, log := t.TempDir(), new(strings.Builder)
	s := open(t, dir, func(o *store.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	beginAt(t, s, 3, 10)
	beginAt(t, s, 4, 10)
	bad := []byte("this entry becomes unreadable")
	appendTo(t, s, 3, []*raftpb.Entry{entry(11, store.InitialTerm, bad)}, hard(store.InitialTerm, 11))
	for index := uint64(11); index <= 17; index++ { // more than one segment of 16 MiB
		appendTo(t, s, 4, []*raftpb.Entry{entry(index, store.InitialTerm, make([]byte, 3<<20))},
			hard(store.InitialTerm, index))
		commit(t, s, effectsOf(4, index, nil))
	}
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil || len(segments) < 2 {
		t.Fatalf("%q, %v: this test needs two segments", segments, err)
	}
	text, err := os.ReadFile(slices.Min(segments))
	if err != nil || !bytes.Contains(text, bad) {
		t.Fatalf("the oldest segment lacks the entry: %v", err)
	}
	flip(t, slices.Min(segments), int64(bytes.Index(text, bad)))
	b := new(raftlog.Batch)
	b.Truncate(4, 16)
	if err := s.Append(b); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		store.MaintainLog(s)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "can't be freed") {
		t.Errorf("%d errors, want one about the segment: %s", n, log)
	}
}

// A batch's record of a tablet is unaffected by the batch's reuse.
func TestFiguresOutliveTheirBatch(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	beginAt(t, s, 3, 10)
	beginAt(t, s, 4, 10)
	appendTo(t, s, 3, run(5, 11, 11), nil)
	applied, state := at(11)
	b := new(store.Batch)
	b.PutTabletState(3, state)
	b.PutApplied(3, applied)
	commit(t, s, b)
	b.PutTabletState(4, []byte("something else"))
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	s = open(t, killed(t, dir))
	wantFigures(t, s, 3, 11, "after a kill")
	wantFigures(t, s, 4, 10, "after a kill")
}

// After a replica is removed and recreated at once, the figures are the new one's.
func TestReplacedAtOnce(t *testing.T) {
	for name, join := range map[string]func(gone, begun *store.Batch) []*store.Batch{
		"two batches": func(gone, begun *store.Batch) []*store.Batch {
			return []*store.Batch{gone, begun}
		},
		"one batch": func(gone, _ *store.Batch) []*store.Batch {
			applied, state := at(20)
			gone.PutTabletState(3, state)
			gone.PutApplied(3, applied)
			gone.InitialLog(3, 20, store.InitialTerm)
			return []*store.Batch{gone}
		},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		beginAt(t, s, 3, 10)
		gone, begun := new(store.Batch), effectsOf(3, 20, nil)
		gone.DeleteReplica(3)
		begun.InitialLog(3, 20, store.InitialTerm)
		commit(t, s, join(gone, begun)...)
		advance(t, s, 3, 21, nil)
		if err := s.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		s = open(t, killed(t, dir))
		wantFigures(t, s, 3, 21, name)
		never := effectsOf(9, 10, nil)
		never.InitialLog(9, 10, store.InitialTerm)
		gone = new(store.Batch)
		gone.DeleteReplica(9)
		commit(t, s, never, gone)
		if _, err := s.OpenLog(9); !errors.Is(err, store.ErrNoLog) {
			t.Errorf("%s: begun and removed at once: %v, want ErrNoLog", name, err)
		}
	}
}

// A failed sync of the state is the last: pages dropped by the kernel would count as written the
// next time. No checkpoint is made of it, and nothing is written any more.
func TestFailedSyncIsTheLast(t *testing.T) {
	dir, broken := t.TempDir(), false
	s := open(t, dir, func(o *store.Options) {
		store.BeforeSync(o, func() error {
			if broken {
				return errCut
			}
			return nil
		})
	})
	beginAt(t, s, 3, 10)
	advance(t, s, 3, 11, nil)
	broken = true
	if err := s.Checkpoint(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("%v, want ErrFailed", err)
	}
	broken = false
	record := new(store.Batch)
	record.PutRecord("five", []byte("5"))
	for what, err := range map[string]error{
		"checkpoint": s.Checkpoint(), "commit": s.StateWriter().Commit([]*store.Batch{
			effectsOf(3, 11, nil),
		}),
		"record": s.StateWriter().Commit([]*store.Batch{record}),
	} {
		if !errors.Is(err, store.ErrFailed) {
			t.Errorf("%s after it: %v, want ErrFailed", what, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = open(t, dir)
	wantFigures(t, s, 3, 10, "after the failure")
}

// Checkpoints are made during commits: every 30 s, or after many appends.
func TestWorkerMakesCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "")
		beginAt(t, s, 3, 10)
		wantCheckpoint := func(wait time.Duration, want uint64) {
			t.Helper()
			<-time.After(wait)
			if c, err := openLog(t, s, 3).Checkpoint(); c != want || err != nil {
				t.Errorf("the checkpoint is at %d, %v, want %d", c, err, want)
			}
		}
		<-time.After(time.Second / 2) // between two checks of the worker
		for index := uint64(11); index < 14; index++ {
			advance(t, s, 3, index, nil)
			wantCheckpoint(time.Minute, index)
		}
		written := s.Stats().Log.Written
		if <-time.After(time.Hour); s.Stats().Log.Written != written {
			t.Error("checkpoints of nothing")
		}
		advance(t, s, 3, 14, nil)
		wantCheckpoint(2*time.Second, 14)
		advance(t, s, 3, 15, nil)
		wantCheckpoint(2*time.Second, 14)
		for index := uint64(16); index < 24; index++ {
			appendTo(t, s, 3, []*raftpb.Entry{entry(index, store.InitialTerm, make([]byte, 8<<20))},
				nil)
			commit(t, s, effectsOf(3, index, nil))
		}
		wantCheckpoint(2*time.Second, 23)
	})
}

// Open restores exactly the state of the log, of many tablets, whatever became of it in Badger.
func TestRestoreMuch(t *testing.T) {
	const tablets = 1000
	dir := t.TempDir()
	s := open(t, dir, memTable(2<<20))
	b := new(store.Batch)
	for id := range uint64(tablets) {
		applied, _ := at(10)
		b.PutTabletState(id, bytes.Repeat([]byte{byte(id)}, 2000+int(id)%5))
		b.PutApplied(id, applied)
		b.InitialLog(id, 10, store.InitialTerm)
		b.PutTombstone(tablets+id, nil)
	}
	b.PutTabletState(5, bytes.Repeat([]byte("long"), 200<<10)) // several chunks
	b.PutRecord("kept", []byte("record"))
	b.PutRecord("gone", []byte("record"))
	b.PutRecord("gone", nil)
	commit(t, s, b)
	spoil := new(store.Batch) // as if committed since the checkpoint
	for id := range uint64(tablets) {
		spoil.PutTabletState(id, []byte("later"))
	}
	spoil.PutTabletState(3*tablets, []byte("unknown"))
	spoil.PutApplied(3*tablets, store.Applied{Index: 3})
	spoil.Put([]byte("ngone"), []byte("back"))
	spoil.Delete([]byte("nkept"))
	commit(t, s, spoil)
	s = open(t, killed(t, dir), memTable(2<<20))
	snap := s.Snap()
	defer snap.Close()
	n := 0
	for e, err := range snap.TabletStates() {
		want := bytes.Repeat([]byte{byte(e.Tablet)}, 2000+int(e.Tablet)%5)
		if e.Tablet == 5 {
			want = bytes.Repeat([]byte("long"), 200<<10)
		}
		if n++; err != nil || !bytes.Equal(e.State, want) {
			t.Fatalf("tablet %d has a state of %d bytes, %v", e.Tablet, len(e.State), err)
		}
	}
	if n != tablets || len(collect(t, snap.Tombstones())) != tablets {
		t.Errorf("%d tablets, want %d", n, tablets)
	}
	if v, ok, err := snap.Record("kept"); string(v) != "record" || !ok || err != nil {
		t.Errorf("the record is %q, %v", v, err)
	}
	if v, ok, err := snap.Record("gone"); ok || err != nil {
		t.Errorf("a record returned: %q, %v", v, err)
	}
}

// A Commit that does not fit into the log is not acknowledged, does not fail, and succeeds later;
// no earlier checkpoint contains its records of tablets.
func TestNoRoomForARecord(t *testing.T) {
	d := disk.New(t, 64<<20)
	dir, logDir := t.TempDir(), filepath.Join(d.Dir(), "log")
	options := func(o *store.Options) {
		o.LogDir, o.FreeBytes = logDir, func() (uint64, error) { return 1 << 40, nil }
	}
	s := open(t, dir, options)
	beginAt(t, s, 3, 10)
	advance(t, s, 3, 11, nil)
	filler, err := os.Create(filepath.Join(d.Dir(), "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	var space unix.Statfs_t
	if err := unix.Statfs(d.Dir(), &space); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(filler.Fd()), 0, 0, int64(space.Bavail)*space.Bsize); err != nil {
		t.Fatal(err)
	}
	b, more := effectsOf(3, 30, nil), new(store.Batch)
	b.InitialLog(3, 30, store.InitialTerm)
	b.PutRecord("one", make([]byte, 9<<20)) // both are more than a segment
	more.PutRecord("two", make([]byte, 9<<20))
	if err := s.StateWriter().Commit([]*store.Batch{b, more}); !errors.Is(err, store.ErrDiskFull) ||
		errors.Is(err, store.ErrFailed) {
		t.Fatalf("%v, want ErrDiskFull", err)
	}
	if err := s.Checkpoint(); err != nil {
		t.Error(err)
	}
	lost, lostLog := killed(t, dir), killed(t, logDir)
	after := open(t, lost, func(o *store.Options) { o.LogDir = lostLog })
	wantFigures(t, after, 3, 11, "killed without room")
	snap := after.Snap()
	defer snap.Close()
	if _, ok, err := snap.Record("one"); ok || err != nil {
		t.Errorf("a record that was not acknowledged is there: %v", err)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	commit(t, s, b, more)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options)
	wantFigures(t, s, 3, 30, "with room again")
}

// A tablet's state that has not changed since the store was opened is in later checkpoints, and
// survives them.
func TestStateOutlivesTwoStarts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, memTable(2<<20))
	beginAt(t, s, 3, 10)
	_, want := at(10)
	for index := uint64(11); index < 14; index++ {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, memTable(2<<20))
		snap := s.Snap()
		if state, _, err := snap.TabletState(3); err != nil || !bytes.Equal(state, want) {
			t.Errorf("LOST-STATE: start before entry %d: %q, %v, want %q", index, state, err, want)
		}
		snap.Close()
		appendTo(t, s, 3, run(store.InitialTerm, index, index), hard(store.InitialTerm, index))
		b := new(store.Batch)
		applied, _ := at(index)
		b.PutApplied(3, applied)
		commit(t, s, b)
		if err := s.Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
}
