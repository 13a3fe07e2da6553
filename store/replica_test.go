package store_test

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/store"
)

// Markers and tombstones survive, replace one another, and do not mix.
func TestReplicaRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	b := new(store.Batch)
	b.PutTombstone(4, []byte("t4"))
	b.PutTombstone(4, []byte("t5"))
	b.PutInstalling(4, nil)
	b.PutInstalling(9, []byte("i9"))
	commit(t, s, b)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	snap := s.Snap()
	defer snap.Close()
	if v, ok, err := snap.Tombstone(4); string(v) != "t5" || !ok || err != nil {
		t.Errorf("tombstone %q %v %v", v, ok, err)
	}
	if _, ok, err := snap.Tombstone(9); ok || err != nil {
		t.Errorf("a tombstone of 9: %v", err)
	}
	if v, ok, err := snap.Installing(4); len(v) != 0 || !ok || err != nil {
		t.Errorf("marker %q %v %v", v, ok, err)
	}
	var ids []uint64
	for e, err := range snap.Installings() {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.Tablet)
	}
	if len(ids) != 2 || ids[0] != 4 || ids[1] != 9 {
		t.Errorf("markers of %v", ids)
	}
	n := 0
	for e, err := range snap.Tombstones() {
		if n++; err != nil || e.Tablet != 4 || string(e.State) != "t5" {
			t.Errorf("tombstone %v %v", e, err)
		}
	}
	if n != 1 {
		t.Errorf("%d tombstones", n)
	}
	b = new(store.Batch)
	b.DeleteInstalling(4)
	commit(t, s, b)
	later := s.Snap()
	defer later.Close()
	if _, ok, _ := later.Installing(4); ok {
		t.Error("the marker is still there")
	}
}

// A log moved by a snapshot keeps its vote, and is committed up to its beginning.
func TestInitialLogKeepsTheVote(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	begin(t, s, 3)
	appendTo(t, s, 3, run(6, 11, 14), hard(9, 12))
	for _, c := range []struct{ index, term, wantTerm, wantVote uint64 }{{40, 7, 9, 1},
		{50, 12, 12, 0}} {
		b := new(store.Batch)
		b.PutTabletState(3, []byte("moved"))
		b.PutApplied(3, store.Applied{Index: c.index, Term: c.term})
		b.InitialLog(3, c.index, c.term)
		commit(t, s, b)
		for _, when := range []string{"at once", "after reopening"} {
			l := openLog(t, s, 3)
			hs, _, _ := l.InitialState()
			if hs.GetTerm() != c.wantTerm || hs.GetVote() != c.wantVote ||
				hs.GetCommit() != c.index {
				t.Errorf("%s: begins at %d: hard state %v", when, c.index, hs)
			}
			first, _ := l.FirstIndex()
			last, _ := l.LastIndex()
			if term, err := l.Term(c.index); first != c.index+1 || last != c.index ||
				term != c.term || err != nil {
				t.Errorf("%s: the log is [%d, %d] behind term %d, %v", when, first, last, term, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir)
		}
	}
}

// A deleted replica leaves no log behind, whatever its vote, also if another begins at once.
func TestDeleteReplica(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	begin(t, s, 3)
	appendTo(t, s, 3, run(6, 11, 14), hard(9, 12))
	b := new(store.Batch)
	b.PutApplied(3, store.Applied{Index: 12, Term: 6})
	commit(t, s, b)
	b = new(store.Batch)
	b.DeleteReplica(3)
	commit(t, s, b)
	for range 2 {
		if _, err := s.OpenLog(3); !errors.Is(err, store.ErrNoLog) {
			t.Fatalf("open log: %v", err)
		}
		snap := s.Snap()
		if _, ok, _ := snap.TabletState(3); ok {
			t.Error("there is a state")
		}
		if _, ok, _ := snap.Applied(3); ok {
			t.Error("there is an applied record")
		}
		snap.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
	}
	b = new(store.Batch)
	b.InitialLog(3, 0, 0)
	commit(t, s, b)
	l := openLog(t, s, 3)
	if hs, _, _ := l.InitialState(); hs.GetTerm() != 0 || hs.GetVote() != 0 || hs.GetCommit() != 0 {
		t.Errorf("the new replica has voted: %v", hs)
	}
	l.SetSnapshot(func() (*raftpb.Snapshot, error) { return &raftpb.Snapshot{}, nil })
	if _, err := l.Snapshot(); err != nil {
		t.Error(err)
	}
}
