package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// round returns a batch that sets each of n keys to the number.
func round(number uint64, n int) *store.Batch {
	b := new(store.Batch)
	for i := range n {
		b.Put(fmt.Appendf(nil, "q%04d", i), binary.BigEndian.AppendUint64(nil, number))
	}
	return b
}

// readRound reads all keys of a round and checks that they agree.
func readRound(s *store.Snap, n int) (number uint64, err error) {
	for i := range n {
		v, ok, err := s.Get(fmt.Appendf(nil, "q%04d", i))
		if err != nil {
			return 0, err
		}
		var got uint64
		if ok {
			got = binary.BigEndian.Uint64(v)
		}
		if i == 0 {
			number = got
		}
		if got != number {
			return 0, fmt.Errorf("torn batch: at sequence %d key 0 is of round %d and key %d of round %d", s.Sequence(), number, i, got)
		}
	}
	return number, nil
}

// A Snap shows only complete batches, and all of those acknowledged before it was opened. Catches
// BROKEN=torn_seq.
func TestSnapNeverTorn(t *testing.T) {
	const keys, readers = 100, 2
	s := open(t, "")
	var acknowledged atomicMax
	stop := time.Now().Add(2 * time.Second)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := uint64(1); time.Now().Before(stop) && !t.Failed(); n++ {
			if err := s.StateWriter().Commit([]*store.Batch{round(n, keys)}); err != nil {
				t.Errorf("commit: %v", err)
				return
			}
			acknowledged.store(n)
		}
	})
	for range readers {
		wg.Go(func() {
			for time.Now().Before(stop) && !t.Failed() {
				atLeast := acknowledged.load()
				snap := s.Snap()
				n, err := readRound(snap, keys)
				snap.Close()
				if err != nil {
					t.Error(err)
				} else if n < atLeast {
					t.Errorf("round %d was acknowledged before the snap was opened, it shows %d",
						atLeast, n)
				}
			}
		})
	}
	wg.Wait()
	if n := acknowledged.load(); n < 10 {
		t.Errorf("only %d rounds were written: the test showed nothing", n)
	}
}

// atomicMax is a number written by one goroutine and read by others.
type atomicMax struct {
	mu sync.Mutex
	n  uint64
}

func (a *atomicMax) store(n uint64) { a.mu.Lock(); a.n = n; a.mu.Unlock() }

func (a *atomicMax) load() uint64 { a.mu.Lock(); defer a.mu.Unlock(); return a.n }

// The content of a Snap stays the same through overwrites, flushes and compactions.
func TestSnapKeepsItsVersions(t *testing.T) {
	const keys = 200
	s := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize = 1 << 20; o.NoSync = true })
	commit(t, s, round(1, keys))
	first := s.Snap()
	defer first.Close()
	for n := uint64(2); n < 2000; n++ {
		commit(t, s, round(n, keys))
		if n%400 != 0 {
			continue
		}
		if err := store.Compact(s); err != nil {
			t.Fatal(err)
		}
		if got, err := readRound(first, keys); err != nil || got != 1 {
			t.Fatalf("after %d rounds the first snap shows round %d, %v", n, got, err)
		}
		later := s.Snap()
		if got, err := readRound(later, keys); err != nil || got != n {
			t.Fatalf("a new snap shows round %d of %d, %v", got, n, err)
		}
		later.Close()
	}
}

// Versions invisible to all Snaps are dropped (otherwise the applied records of tablets alone would
// fill the disk).
func TestOldVersionsGo(t *testing.T) {
	const keys = 200
	s := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize = 1 << 20; o.NoSync = true })
	left, rounds := 0, 0
	for rounds < 8000 { // Badger compacts nothing while all tables are of one level
		for range 2000 {
			rounds++
			commit(t, s, round(uint64(rounds), keys))
		}
		if err := store.Compact(s); err != nil {
			t.Fatal(err)
		}
		if left = store.Versions(s, []byte("q0000")); left <= rounds*6/10 {
			return
		}
	}
	t.Errorf("%d versions of one key are left of %d", left, rounds)
}

func collect[T any](t *testing.T, seq func(func(T, error) bool)) []T {
	t.Helper()
	var out []T
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// Every group is read as it was written: points, scans both ways, and whole rows.
func TestGroups(t *testing.T) {
	s := open(t, t.TempDir())
	a, b, other := cell("a\x00", "c"), cell("b", "c"), mvcc.Cell{Table: 17, Row: "a", Column: "c"}
	primary := mvcc.Cell{Table: 16, Row: "p", Class: mvcc.ClassAck, Column: "o"}
	worker := mvcc.Worker{Node: 3, Incarnation: 1 << 40}
	var batch store.Batch
	for _, m := range []mvcc.Mutation{
		{Group: mvcc.GroupWrite, Cell: a,
			Write: &mvcc.Write{
				CommitTS: 30, StartTS: 25, Kind: mvcc.KindPut, Value: []byte("v30"),
			}},
		{Group: mvcc.GroupHistory, Cell: a, TS: 10,
			Write: &mvcc.Write{CommitTS: 10, StartTS: 5, Kind: mvcc.KindDelete}},
		{Group: mvcc.GroupHistory, Cell: a, TS: 20,
			Write: &mvcc.Write{CommitTS: 20, StartTS: 15, Kind: mvcc.KindPut, Long: true}},
		{Group: mvcc.GroupData, Cell: a, TS: 15, Value: []byte("long")},
		{Group: mvcc.GroupRollback, Cell: a, TS: 17},
		{Group: mvcc.GroupLock, Cell: a,
			Lock: &mvcc.Lock{
				StartTS: 40, Primary: primary, Expiry: 99, Worker: worker, Kind: mvcc.KindPut,
				Value: []byte("w"),
			}},
		{Group: mvcc.GroupNotify, Cell: a,
			Notify: &mvcc.Notify{TS: 30, Attempts: 2, ParkedTS: 31, Replay: true, Error: "boom"}},
		{Group: mvcc.GroupIntent, Cell: a, TS: 41,
			Intent: &mvcc.Intent{Primary: primary, Expiry: 77, Worker: worker}},
		{Group: mvcc.GroupRaw, Cell: a, Value: []byte("raw")},
		{Group: mvcc.GroupLocked, Cell: a,
			Write: &mvcc.Write{CommitTS: 33, StartTS: 29, Kind: mvcc.KindLock}},
		{Group: mvcc.GroupWrite, Cell: b,
			Write: &mvcc.Write{CommitTS: 31, StartTS: 26, Kind: mvcc.KindPut}},
		{Group: mvcc.GroupNotify, Cell: b, Notify: &mvcc.Notify{TS: 31}},
		{Group: mvcc.GroupWrite, Cell: other,
			Write: &mvcc.Write{CommitTS: 32, StartTS: 27, Kind: mvcc.KindPut}},
	} {
		batch.PutMutation(&m)
	}
	commit(t, s, &batch)
	snap := s.SnapWithLocks()
	defer snap.Close()

	checkPoints(t, snap, a)
	span := mvcc.Span{Table: 16}
	forward, back := collect(t, snap.Cells(span, false)), collect(t, snap.Cells(span, true))
	if len(forward) != 2 || forward[0].Cell != a || forward[1].Cell != b || len(back) != 2 ||
		back[0].Cell != b {
		t.Errorf("cells: %v and back %v", forward, back)
	}
	if got := collect(t, snap.Cells(mvcc.Span{Table: 16, Start: "a", End: "b", HasEnd: true},
		true)); len(got) != 1 || got[0].Cell != a {
		t.Errorf("cells of [a, b) back: %v", got)
	}
	if got := collect(t, snap.DiskLocks(span)); len(got) != 1 || got[0].Lock.Primary != primary ||
		got[0].Lock.Worker != worker {
		t.Errorf("locks: %v", got)
	}
	if got := collect(t, snap.RawCells(span)); len(got) != 1 || string(got[0].Value) != "raw" {
		t.Errorf("raw cells: %v", got)
	}
	column := mvcc.ObservedColumn{Table: 16, Column: "c"}
	if got := collect(t, snap.Notifies(column, "a\x00", true)); len(got) != 1 || got[0].Cell != b {
		t.Errorf("notifications after a: %v", got)
	}
	if got := collect(t, snap.Notifies(column, "a\x00", false)); len(got) != 2 ||
		got[0].Notify.Error != "boom" || !got[0].Notify.Replay {
		t.Errorf("notifications from a: %v", got)
	}
	if got := collect(t, snap.Intents(16, "c", "")); len(got) != 1 || got[0].StartTS != 41 ||
		got[0].Intent.Primary != primary {
		t.Errorf("intents: %v", got)
	}
	row, err := snap.Row(16, "a\x00", 10, []mvcc.ObservedColumn{column})
	if err != nil || len(row) != 9 {
		t.Errorf("row: %v, %v", row, err)
	}
	if row, err = snap.Row(16, "a\x00", 1, nil); err != nil || len(row) != 6 {
		t.Errorf("row with one of each: %v, %v", row, err)
	}
}

func checkPoints(t *testing.T, snap *store.Snap, a mvcc.Cell) {
	t.Helper()
	if w, ok, err := snap.Newest(a); err != nil || !ok || w.CommitTS != 30 || w.StartTS != 25 ||
		string(w.Value) != "v30" {
		t.Errorf("newest: %v, %v, %v", w, ok, err)
	}
	if _, ok, err := snap.Newest(cell("a", "c")); ok || err != nil {
		t.Errorf("newest of an absent cell: %v, %v", ok, err)
	}
	for from, want := range map[mvcc.Timestamp]string{mvcc.MaxTimestamp: "20 10 ", 20: "20 10 ",
		19: "10 ", 9: ""} {
		got := ""
		for _, w := range collect(t, snap.Older(a, from)) {
			got += fmt.Sprintf("%d ", w.CommitTS)
		}
		if got != want {
			t.Errorf("older from %d: %q, want %q", from, got, want)
		}
	}
	if v, ok, err := snap.Data(a, 15); err != nil || !ok || string(v) != "long" {
		t.Errorf("data: %q, %v, %v", v, ok, err)
	}
	for ts, want := range map[mvcc.Timestamp]bool{17: true, 16: false, 18: false} {
		if got, err := snap.RolledBack(a, ts); err != nil || got != want {
			t.Errorf("rolled back at %d: %v, %v", ts, got, err)
		}
	}
	if n, ok, err := snap.Notification(a); err != nil || !ok || n.Attempts != 2 ||
		n.ParkedTS != 31 {
		t.Errorf("notification: %v, %v, %v", n, ok, err)
	}
	if i, ok, err := snap.Intent(a, 41); err != nil || !ok || i.Expiry != 77 {
		t.Errorf("intent: %v, %v, %v", i, ok, err)
	}
	if v, ok, err := snap.Raw(a); err != nil || !ok || string(v) != "raw" {
		t.Errorf("raw: %q, %v, %v", v, ok, err)
	}
	for from, want := range map[mvcc.Timestamp]bool{33: true, 34: false} {
		if w, ok, err := snap.PastLock(a, from); err != nil || ok != want || w.StartTS != 29 {
			t.Errorf("locked at %d or later: %v, %v, %v", from, w, ok, err)
		}
	}
	for start, want := range map[string]bool{"a": true, "a\x00": true, "a\x00\x00": false} {
		if got, err := snap.PastLocks(mvcc.Span{Table: 16, Start: start}); err != nil || got != want {
			t.Errorf("locked at some time from row %q on: %v, %v", start, got, err)
		}
	}
}

// Tablet states are returned by id, in order, and can be deleted.
func TestTabletStates(t *testing.T) {
	s := open(t, "")
	var b store.Batch
	for _, id := range []uint64{256, 1, 2} {
		b.PutTabletState(id, fmt.Appendf(nil, "state %d", id))
	}
	b.PutTabletState(3, nil)
	b.PutApplied(2, store.Applied{Index: 9, Term: 8, Epoch: 7, Bytes: 6, Rough: true})
	b.DeleteReplica(256)
	commit(t, s, &b)
	snap := s.Snap()
	defer snap.Close()
	got := collect(t, snap.TabletStates())
	if len(got) != 3 || got[0].Tablet != 1 || got[1].Tablet != 2 ||
		string(got[1].State) != "state 2" || got[2].Tablet != 3 {
		t.Errorf("tablet states: %v", got)
	}
	if _, ok, err := snap.TabletState(256); ok || err != nil {
		t.Errorf("a deleted state: %v, %v", ok, err)
	}
	if a, ok, err := snap.Applied(2); err != nil || !ok ||
		a != (store.Applied{Index: 9, Term: 8, Epoch: 7, Bytes: 6, Rough: true}) {
		t.Errorf("applied: %v, %v, %v", a, ok, err)
	}
}

// TestRowIsBounded: a row of many long versions is not read completely into memory; each group
// still returns its newest.
func TestRowIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	cell := mvcc.Cell{Table: 16, Row: "hot", Column: "c"}
	for ts := mvcc.Timestamp(1); ts <= 12; ts++ {
		var batch store.Batch
		batch.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupData, Cell: cell, TS: ts, Value: make([]byte, 1<<20),
		})
		batch.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRollback, Cell: cell, TS: ts})
		commit(t, s, &batch)
	}
	snap := s.SnapWithLocks()
	defer snap.Close()
	row, err := snap.Row(16, "hot", 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	bytes, groups := 0, map[mvcc.Group]int{}
	for _, e := range row {
		bytes += len(e.Value)
		groups[e.Group]++
	}
	if bytes > 5<<20 || groups[mvcc.GroupData] < 2 || groups[mvcc.GroupRollback] < 1 {
		t.Errorf("%d bytes in %v, want at most 5 MiB, with 2 values and a rollback", bytes, groups)
	}
}

// TestRowOfManyLongCells: a row of many cells, each with a long value, is not read completely into
// memory.
func TestRowOfManyLongCells(t *testing.T) {
	s := open(t, t.TempDir())
	var cells []mvcc.Cell
	for i := range 16 {
		cells = append(cells, mvcc.Cell{Table: 16, Row: "wide", Column: string(rune('a' + i))})
		var batch store.Batch
		batch.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupData, Cell: cells[i], TS: 1, Value: make([]byte, 1<<20),
		})
		commit(t, s, &batch)
	}
	snap := s.SnapWithLocks()
	defer snap.Close()
	row, err := snap.Row(16, "wide", 100, nil, cells...)
	if err != nil || len(row) < 4 || len(row) > 9 {
		t.Errorf("%d values of 1 MiB, %v", len(row), err)
	}
}

// TestRowOfSomeCells: however wide the row, the answer contains exactly the requested cells.
func TestRowOfSomeCells(t *testing.T) {
	s := open(t, "")
	var batch store.Batch
	for _, column := range []string{"a", "b", "c", "cc"} {
		w := &mvcc.Write{CommitTS: 9, StartTS: 8, Kind: mvcc.KindPut, Value: []byte(column)}
		batch.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupWrite, Cell: mvcc.Cell{Table: 16, Row: "r", Column: column}, Write: w,
		})
	}
	commit(t, s, &batch)
	snap := s.SnapWithLocks()
	defer snap.Close()
	row, err := snap.Row(16, "r", 1, nil, mvcc.Cell{Table: 16, Row: "r", Column: "c"},
		mvcc.Cell{Table: 16, Row: "r", Class: mvcc.ClassAck, Column: "b"})
	if err != nil || len(row) != 1 || row[0].Cell.Column != "c" {
		t.Errorf("%v, %v", row, err)
	}
}

// last returns the error with which a walk ended.
func last[T any](walk iter.Seq2[T, error]) (err error) {
	for _, err = range walk {
		continue
	}
	return err
}

// While Badger has no memtable, because it could not create one, every read is an error, and Snaps
// end.
func TestReadWithoutMemtable(t *testing.T) {
	s := open(t, "")
	commit(t, s, round(1, 3))
	mend := store.LoseMemtable(s)
	defer mend()
	c, span := cell("a", "c"), mvcc.Span{Table: 16}
	failed := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrFailed) {
			t.Errorf("%s: %v, want ErrFailed", what, err)
		}
	}
	snap := s.SnapWithLocks()
	_, _, err := snap.Newest(c)
	failed("a record", err)
	_, _, err = snap.Data(c, 1)
	failed("a value", err)
	_, err = snap.Locked(c)
	failed("a lock", err)
	_, _, err = snap.Applied(1)
	failed("an applied index", err)
	failed("older records", last(snap.Older(c, mvcc.MaxTimestamp)))
	failed("locks", last(snap.DiskLocks(span)))
	failed("intents", last(snap.AllIntents(span)))
	failed("history", last(snap.HistoryOf([]mvcc.CellAt{{Cell: c}}, 1)))
	_, err = snap.StagedTablets()
	failed("staged tablets", err)
	_, _, err = snap.Weigh(span, store.WeighPlace{}, 10, 1)
	failed("sizes", err)
	failed("staged entries", snap.Staged(1).Each(func(_, _ []byte) bool { return true }))
	snap.Close()
}
