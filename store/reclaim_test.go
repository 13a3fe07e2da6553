package store_test

import (
	"bytes"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// oneOfEach returns an entry of each group for a row, with a long value in D.
func oneOfEach(i int, long []byte) []mvcc.Mutation {
	c := cell("row"+strconv.Itoa(i), "c")
	ts := mvcc.Timestamp(10 * (i + 1))
	w := &mvcc.Write{CommitTS: ts + 1, StartTS: ts, Kind: mvcc.KindPut, Long: true}
	return []mvcc.Mutation{
		{Group: mvcc.GroupWrite, Cell: c, Write: w},
		{Group: mvcc.GroupHistory, Cell: c, TS: ts, Write: w},
		{Group: mvcc.GroupData, Cell: c, TS: ts, Value: long},
		{Group: mvcc.GroupLock, Cell: c, Lock: &mvcc.Lock{StartTS: ts}},
		{Group: mvcc.GroupRollback, Cell: c, TS: ts},
		{Group: mvcc.GroupNotify, Cell: c, Notify: &mvcc.Notify{TS: ts}},
		{Group: mvcc.GroupIntent, Cell: c, TS: ts, Intent: &mvcc.Intent{}},
	}
}

// stateBytes returns the store's size on disk without the segments of the Raft log.
func stateBytes(s *store.Store) uint64 {
	st := s.Stats()
	return st.DiskBytes - uint64(st.Log.Bytes) - uint64(st.Log.Spares)*raftlog.DefaultSegmentBytes
}

// TestDeletedRowsLeaveNoKey: deleted data, including long values, history, locks, records and a
// truncated log, is neither in Badger's tables after a compaction nor on disk, while an open Snap
// still reads it.
func TestDeletedRowsLeaveNoKey(t *testing.T) {
	st := open(t, t.TempDir(), func(o *store.Options) {
		o.MemTableSize, o.ReclaimInterval = 8<<20, -1
	})
	long := bytes.Repeat([]byte("v"), 400<<10)
	log := begin(t, st, 7)
	const n = 30
	for i := range n {
		b, index := &store.Batch{}, uint64(store.InitialIndex+1+i)
		list := oneOfEach(i, long)
		for j := range list {
			b.PutMutation(&list[j])
		}
		appendTo(t, st, 7, []*raftpb.Entry{entry(index, store.InitialTerm, long)}, nil)
		b.PutApplied(7, store.Applied{Index: index, Term: store.InitialTerm})
		commit(t, st, b)
	}
	snap := st.Snap()
	for i := range n {
		b := &store.Batch{}
		list := oneOfEach(i, long)
		for j := range list {
			m := mvcc.Mutation{
				Group: list[j].Group, Cell: list[j].Cell, TS: list[j].TS, Delete: true,
			}
			b.PutMutation(&m)
		}
		commit(t, st, b)
	}
	if err := st.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	truncation := &raftlog.Batch{}
	truncation.Truncate(7, store.InitialIndex+n)
	if err := st.Append(truncation); err != nil {
		t.Fatal(err)
	}
	if first, err := log.FirstIndex(); first != store.InitialIndex+n+1 || err != nil {
		t.Fatalf("the log begins at %d, %v", first, err)
	}
	if err := st.Compact(); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := snap.Data(cell("row3", "c"), 40); err != nil || !ok || !bytes.Equal(v, long) {
		t.Errorf("an open snap lost a value: %t, %v", ok, err)
	}
	snap.Close()
	for again := true; again; again = store.LevelZero(st) > 0 { // one or two tables stay there unless compacted
		if err := st.Compact(); err != nil {
			t.Fatal(err)
		}
	}
	for group, n := range st.RawKeys() {
		if group != 0 && group != 0xff && (group != 'T' && group != 'a' || n > 1) {
			t.Errorf("group %c has %d keys", group, n)
		}
	}
	awaitStateBytes(t, st, 6<<20)
}

// awaitStateBytes waits until Badger's files have shrunk to this size: those of memtables are
// deleted after their tables were written.
func awaitStateBytes(t *testing.T, s *store.Store, most uint64) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); stateBytes(s) > most; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d bytes on disk, want no more than %d", stateBytes(s), most)
		}
	}
}

// TestReclaimWhenQuiet: after the writes have ended, a pass of Reclaim frees the space of deleted
// data; during writes it leaves this to Badger's compactors.
func TestReclaimWhenQuiet(t *testing.T) {
	const memtable = 4 << 20
	st := open(t, t.TempDir(), func(o *store.Options) {
		o.MemTableSize, o.ReclaimInterval = memtable, -1
	})
	value := bytes.Repeat([]byte("v"), 1<<18)
	for _, del := range []bool{false, true} {
		for i := range 200 {
			b := &store.Batch{}
			b.PutMutation(&mvcc.Mutation{
				Group: mvcc.GroupData, Cell: cell("r"+strconv.Itoa(i), "c"), TS: 1, Value: value,
				Delete: del,
			})
			commit(t, st, b)
		}
	}
	before, disk := st.Stats(), stateBytes(st)
	st.Reclaim()
	if now := st.Stats(); now.Txns != before.Txns {
		t.Error("a pass right after writes has compacted")
	}
	st.Reclaim()
	after := st.Stats()
	awaitStateBytes(t, st, min(3*memtable, disk/4))
	st.Reclaim()
	if again := st.Stats(); again.Txns != after.Txns {
		t.Error("a pass with nothing to do has compacted")
	}
}

// TestHeldTablesKeepTombstones: while tables are held, no younger version is dropped: after a
// crash, the log files of the memtables held with them would restore data that a tombstone has
// deleted. Catches BROKEN=tombstone_dropped.
func TestHeldTablesKeepTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock causes no further hold
		s := open(t, t.TempDir(), func(o *store.Options) { o.ReclaimInterval = -1 })
		write := func() {
			b := &store.Batch{}
			b.Put([]byte("zkey"), []byte("v"))
			commit(t, s, b)
		}
		write()
		for range 3 {
			store.Replaced(s)
			held, _ := store.Discarded(s)
			for range 5 {
				write()
			}
			visible, discarded := store.Discarded(s)
			if visible < held+5 || discarded > held {
				t.Errorf("TOMBSTONE-DROPPED: up to %d of %d, and tables are held at %d", discarded,
					visible, held)
			}
		}
		if _, discarded := store.Discarded(s); discarded == 0 {
			t.Error("nothing may be dropped at all")
		}
	})
}

// TestFlushedVersionsMayGo: once a memtable is flushed for a compaction, all versions in it may be
// dropped, also if Badger finished at once. Otherwise the compaction keeps padding of a memtable's
// size, and the data deleted in the last second.
func TestFlushedVersionsMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock causes no further hold
		s := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize, o.ReclaimInterval = 2<<20, -1 })
		if err := store.Flush(s); err != nil {
			t.Fatal(err)
		}
		store.Discard(s)
		if visible, discarded := store.Discarded(s); discarded != visible {
			t.Errorf("UNDROPPED: up to %d of %d", discarded, visible)
		}
	})
}
