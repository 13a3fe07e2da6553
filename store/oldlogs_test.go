package store_test

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// fillTable commits long values behind a row until level 0 has one more table.
func fillTable(t *testing.T, s *store.Store, row string) {
	t.Helper()
	const valueBytes = 200 << 10
	want := store.LevelZero(s) + 1
	newest := func() string {
		names, err := filepath.Glob(filepath.Join(store.StateDir(s), "*.mem"))
		if err != nil || len(names) == 0 {
			t.Fatalf("log files: %v, %v", names, err)
		}
		return slices.Max(names)
	}
	for i, before := 0, newest(); newest() == before; i++ {
		w := mvcc.Write{CommitTS: 9, StartTS: 8, Kind: mvcc.KindPut, Value: bytes.Repeat([]byte{1}, valueBytes)}
		b := new(store.Batch)
		b.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupWrite, Cell: cell(fmt.Sprintf("%s%03d", row, i), "c"), Write: &w,
		})
		commit(t, s, b)
	}
	within(t, fmt.Sprintf("%d tables in level 0", want), func() bool { return store.LevelZero(s) >= want })
}

// within fails the test unless done returns true within 20 s.
func within(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(20*time.Second), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// A row deleted while a reader kept an older log file of Badger's open stays deleted after a kill,
// whatever is compacted first.
func TestDeletedRowStaysDeletedAfterKill(t *testing.T) {
	dir := t.TempDir()
	options := func(o *store.Options) {
		quiet(o)
		o.MemTableSize = 2 << 20
	}
	s := open(t, filepath.Join(dir, "killed"), options)
	for again := true; again; again = store.LevelZero(s) > 0 { // until another level has tables
		commit(t, s, round(1, 10))
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
	}
	w := mvcc.Write{CommitTS: 9, StartTS: 8, Kind: mvcc.KindPut, Value: []byte("old")}
	m := mvcc.Mutation{Group: mvcc.GroupWrite, Cell: cell("a", "c"), Write: &w}
	b := new(store.Batch)
	b.PutMutation(&m)
	commit(t, s, b)
	snap := s.Snap()
	defer snap.Close()
	next, stop := iter.Pull2(snap.Cells(mvcc.Span{Table: 16}, false))
	defer stop()
	if _, err, ok := next(); err != nil || !ok {
		t.Fatalf("the reader sees nothing: %v", err)
	}
	fillTable(t, s, "a")
	b, m.Delete = new(store.Batch), true
	b.PutMutation(&m)
	commit(t, s, b)
	fillTable(t, s, "a")
	fillTable(t, s, "z") // a compaction of level 0 ends before a table that does not overlap
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	store.Replaced(s) // so that the reader alone keeps log files
	logFiles := func() int {
		names, err := filepath.Glob(filepath.Join(store.StateDir(s), "*.mem"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	within(t, "two log files, the reader's and the active memtable's", func() bool { return logFiles() == 2 })
	// When Badger flushes the replayed memtable decides what the compaction merges, so it is repeated.
	for i := range 4 {
		killed := filepath.Join(dir, fmt.Sprint("copy", i))
		if err := os.CopyFS(killed, os.DirFS(filepath.Join(dir, "killed"))); err != nil {
			t.Fatal(err)
		}
		s := open(t, killed, options)
		if err := store.Compact(s); err != nil {
			t.Fatal(err)
		}
		after := s.Snap()
		defer after.Close()
		if _, ok, err := after.Newest(m.Cell); ok || err != nil {
			t.Fatalf("REVIVED: a deleted row is back: %t, %v", ok, err)
		}
	}
}
