package store_test

import (
	"bytes"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// open opens a store in dir, or one in memory if dir is empty, and closes it at the end of the
// test.
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

// begin adds a tablet with a log that begins where new ones do.
func begin(t testing.TB, s *store.Store, tablet uint64) *raftlog.Replica {
	t.Helper()
	b := new(store.Batch)
	b.PutTabletState(tablet, []byte("state"))
	b.PutApplied(tablet, store.Applied{Index: store.InitialIndex, Term: store.InitialTerm})
	b.InitialLog(tablet, store.InitialIndex, store.InitialTerm)
	commit(t, s, b)
	return openLog(t, s, tablet)
}

func openLog(t testing.TB, s *store.Store, tablet uint64) *raftlog.Replica {
	t.Helper()
	l, err := s.OpenLog(tablet)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// appendTo appends entries to a tablet's log.
func appendTo(t testing.TB, s *store.Store, tablet uint64, entries []*raftpb.Entry,
	hs *raftpb.HardState) {
	t.Helper()
	b := new(raftlog.Batch)
	b.Append(tablet, entries, hs)
	if err := s.Append(b); err != nil {
		t.Fatal(err)
	}
}

// run returns the entries [from, to] of a term, with data that identifies them.
func run(term, from, to uint64) (out []*raftpb.Entry) {
	for i := from; i <= to; i++ {
		out = append(out, entry(i, term, fmt.Appendf(nil, "%d.%d", term, i)))
	}
	return out
}

func hard(term, commit uint64) *raftpb.HardState {
	vote := uint64(1)
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// A value at the limit passes through a Raft log and the state and is present after reopening
// (design section 2).
func TestValueAtTheLimit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	big := bytes.Repeat([]byte("0123456789abcdef"), 6<<20/16)    // 6 MiB
	long := bytes.Repeat([]byte("0123456789abcdef"), 9<<20/16)   // 9 MiB
	half := bytes.Repeat([]byte("0123456789abcdef"), 512<<10/16) // 512 KiB: two chunks
	begin(t, s, 7)
	appendTo(t, s, 7, []*raftpb.Entry{entry(11, 5, long)}, nil)
	var one, many store.Batch
	one.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell("r", "c"), TS: 9, Value: big})
	for i := range 16 {
		many.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupData, Cell: cell("r", "c"), TS: mvcc.Timestamp(100 + i), Value: half,
		})
	}
	commit(t, s, &one, &many)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir)
	got, err := openLog(t, s, 7).Entries(11, 12, 1)
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].Data, long) {
		t.Fatalf("the entry of 9 MiB came back as %d entries, %v", len(got), err)
	}
	snap := s.Snap()
	defer snap.Close()
	for ts, want := range map[mvcc.Timestamp][]byte{9: big, 100: half, 115: half} {
		v, ok, err := snap.Data(cell("r", "c"), ts)
		if err != nil || !ok || !bytes.Equal(v, want) {
			t.Errorf("value at %d: %d bytes, %v, %v", ts, len(v), ok, err)
		}
	}
}
