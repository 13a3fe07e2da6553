package store_test

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// open opens a store in dir, or one in memory if dir is empty, that the test closes at its end.
func open(t testing.TB, dir string, change ...func(*store.Options)) *store.Store {
	t.Helper()
	o := store.Options{Dir: dir, InMemory: dir == "", MinFreeBytes: 1 << 20}
	for _, f := range change {
		f(&o)
	}
	s, err := store.Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && err != store.ErrClosed {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// commit commits batches to the state.
func commit(t testing.TB, s *store.Store, batches ...*store.Batch) {
	t.Helper()
	if err := s.StateWriter().Commit(batches); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func cell(row, column string) mvcc.Cell { return mvcc.Cell{Table: 16, Row: row, Column: column} }

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: data}
}

// A value at the limit goes through a Raft log and the state and comes back after reopening (design section 2).
func TestValueAtTheLimit(t *testing.T) {
	for _, separate := range []bool{false, true} {
		dir := t.TempDir()
		layout := func(o *store.Options) { o.SeparateLog = separate }
		s := open(t, dir, layout)
		big := bytes.Repeat([]byte("0123456789abcdef"), 6<<20/16)    // 6 MiB
		long := bytes.Repeat([]byte("0123456789abcdef"), 9<<20/16)   // 9 MiB
		half := bytes.Repeat([]byte("0123456789abcdef"), 512<<10/16) // 512 KiB: stays in the LSM tree

		var lb, sb store.Batch
		store.InitialLog(&lb, 7, 5, 1)
		if err := s.LogWriter().Commit([]*store.Batch{&lb}); err != nil {
			t.Fatal(err)
		}
		l, err := s.OpenLog(7)
		if err != nil {
			t.Fatal(err)
		}
		lb.Reset()
		entries := []*raftpb.Entry{entry(6, 1, long)}
		l.Append(&lb, entries, nil)
		sb.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell("r", "c"), TS: 9, Value: big})
		var many store.Batch
		for i := range 16 {
			many.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell("r", "c"), TS: mvcc.Timestamp(100 + i), Value: half})
		}
		if err := s.LogWriter().Commit([]*store.Batch{&lb}); err != nil {
			t.Fatal(err)
		}
		commit(t, s, &sb, &many)
		l.Appended(entries, nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}

		s = open(t, dir, layout)
		if l, err = s.OpenLog(7); err != nil {
			t.Fatal(err)
		}
		got, err := l.Entries(6, 7, 1)
		if err != nil || len(got) != 1 || !bytes.Equal(got[0].Data, long) {
			t.Fatalf("separate=%v: the entry of 9 MiB came back as %d entries, %v", separate, len(got), err)
		}
		snap := s.Snap()
		for ts, want := range map[mvcc.Timestamp][]byte{9: big, 100: half, 115: half} {
			v, ok, err := snap.Data(cell("r", "c"), ts)
			if err != nil || !ok || !bytes.Equal(v, want) {
				t.Errorf("separate=%v: value at %d: %d bytes, %v, %v", separate, ts, len(v), ok, err)
			}
		}
		snap.Close()
	}
}
