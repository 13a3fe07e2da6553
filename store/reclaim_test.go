package store_test

import (
	"bytes"
	"strconv"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// oneOfEach is an entry of each group for a row, with a long value in D.
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

// TestDeletedRowsLeaveNoKey: what was written and deleted again, long values, history, locks, records and a truncated log
// included, is not in Badger's tables after a compaction, nor on disk, while an open Snap keeps what it sees.
func TestDeletedRowsLeaveNoKey(t *testing.T) {
	st := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize, o.ReclaimInterval = 8<<20, -1 })
	long := bytes.Repeat([]byte("v"), 400<<10)
	b := &store.Batch{}
	store.InitialLog(b, 7, store.InitialIndex, store.InitialTerm)
	commit(t, st, b)
	log, err := st.OpenLog(7)
	if err != nil {
		t.Fatal(err)
	}
	const n = 30
	for i := range n {
		b, index, term := &store.Batch{}, uint64(store.InitialIndex+1+i), uint64(store.InitialTerm)
		list := oneOfEach(i, long)
		for j := range list {
			b.PutMutation(&list[j])
		}
		entries := []*raftpb.Entry{{Index: &index, Term: &term, Data: long}}
		log.Append(b, entries, nil)
		commit(t, st, b)
		log.Appended(entries, nil)
	}
	snap := st.Snap()
	for i := range n {
		b := &store.Batch{}
		list := oneOfEach(i, long)
		for j := range list {
			m := mvcc.Mutation{Group: list[j].Group, Cell: list[j].Cell, TS: list[j].TS, Delete: true}
			b.PutMutation(&m)
		}
		commit(t, st, b)
	}
	b = &store.Batch{}
	upTo, err := log.Truncate(b, store.InitialIndex+n)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, st, b)
	log.Truncated(upTo)
	if err := st.Compact(); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := snap.Data(cell("row3", "c"), 40); err != nil || !ok || !bytes.Equal(v, long) {
		t.Errorf("an open snap lost a value: %t, %v", ok, err)
	}
	snap.Close()
	if err := st.Compact(); err != nil {
		t.Fatal(err)
	}
	for group, n := range st.RawKeys() {
		if group != 0 && group != 0xff && (group != 'r' || n > 2) {
			t.Errorf("group %c has %d keys", group, n)
		}
	}
	if disk := st.Stats().DiskBytes; disk > 6<<20 {
		t.Errorf("%d bytes on disk for nothing", disk)
	}
}

// TestReclaimWhenQuiet: when the writes have ended, a pass of Reclaim gives the space of what was deleted back; while they go
// on it leaves Badger's compactors alone.
func TestReclaimWhenQuiet(t *testing.T) {
	const memtable = 4 << 20
	st := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize, o.ReclaimInterval = memtable, -1 })
	value := bytes.Repeat([]byte("v"), 1<<18)
	for _, del := range []bool{false, true} {
		for i := range 200 {
			b := &store.Batch{}
			b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell("r"+strconv.Itoa(i), "c"), TS: 1, Value: value, Delete: del})
			commit(t, st, b)
		}
	}
	before := st.Stats()
	st.Reclaim()
	if now := st.Stats(); now.Txns != before.Txns {
		t.Error("a pass right after writes has compacted")
	}
	st.Reclaim()
	after := st.Stats()
	if after.DiskBytes > 3*memtable || after.DiskBytes > before.DiskBytes/4 {
		t.Errorf("%d bytes on disk before, %d after", before.DiskBytes, after.DiskBytes)
	}
	st.Reclaim()
	if again := st.Stats(); again.Txns != after.Txns {
		t.Error("a pass with nothing to do has compacted")
	}
}
