package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var everyGroup = []mvcc.Group{
	mvcc.GroupData, mvcc.GroupHistory, mvcc.GroupIntent, mvcc.GroupLock, mvcc.GroupNotify,
	mvcc.GroupRaw, mvcc.GroupRollback,
	mvcc.GroupWrite,
}

var rowNames = []string{"", "\x00", "a", "a\x00", "m", "m\x00b", "z", "\xff\xff"}

// placed is an entry with its position.
type placed struct {
	store.Entry
	table mvcc.TableID
	row   string
}

// fill writes an entry of every group into every row of some tables, and returns them in the order
// of their keys.
func fill(t *testing.T, s *store.Store) (out []placed) {
	t.Helper()
	b := new(store.Batch)
	for _, g := range everyGroup {
		for table := mvcc.TableID(3); table < 7; table++ {
			for _, row := range rowNames {
				for _, column := range []string{"", "c", "d\x00"} {
					c := mvcc.Cell{Table: table, Row: row, Column: column}
					key := store.AppendKey(nil, g, c, mvcc.Timestamp(len(out)+1))
					out = append(out, placed{
						store.Entry{Key: key, Value: fmt.Appendf(nil, "v%d", len(out))}, table, row,
					})
				}
			}
		}
	}
	for _, e := range out {
		b.Put(e.Key, e.Value)
	}
	commit(t, s, b)
	slices.SortFunc(out, func(a, b placed) int { return bytes.Compare(a.Key, b.Key) })
	return out
}

// inRows is the plainest definition of Rows.
func inRows(r store.Rows, table mvcc.TableID, row string) bool {
	if table < r.Table || (table == r.Table && row < r.Row) {
		return false
	}
	return !r.Bounded || table < r.EndTable || (table == r.EndTable && row < r.EndRow)
}

// someRows are all ranges between a few positions.
func someRows() (out []store.Rows) {
	type place struct {
		table mvcc.TableID
		row   string
	}
	var places []place
	for table := mvcc.TableID(2); table < 8; table++ {
		for _, row := range []string{"", "a", "a\x00", "n", "\xff\xff\xff"} {
			places = append(places, place{table, row})
		}
	}
	for i, p := range places {
		out = append(out, store.Rows{Table: p.table, Row: p.row})
		for _, q := range places[i:] {
			out = append(out, store.Rows{
				Table: p.table, Row: p.row, EndTable: q.table, EndRow: q.row, Bounded: true,
			})
		}
	}
	return out
}

// A cursor returns exactly the entries of the rows, in the order of the keys, however small its
// pieces.
func TestCursorGivesItsRows(t *testing.T) {
	s := open(t, "")
	all := fill(t, s)
	snap := s.SnapWithLocks()
	defer snap.Close()
	for _, rows := range someRows() {
		var want []string
		for _, e := range all {
			if inRows(rows, e.table, e.row) {
				want = append(want, string(e.Key)+"="+string(e.Value))
			}
		}
		for _, most := range []int{7, 1 << 20} {
			var got []string
			for c := snap.Cursor(rows); ; {
				entries, err := c.Next(most, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if len(entries) == 0 {
					break
				}
				for _, e := range entries {
					got = append(got, string(e.Key)+"="+string(e.Value))
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v, %d at a time: %d entries, want %d", rows, most, len(got), len(want))
			}
		}
	}
}

// Deleting by a cursor removes the entries of the rows and nothing else, long values with all their
// chunks.
func TestCursorDeletesItsRows(t *testing.T) {
	s := open(t, "")
	all := fill(t, s)
	long := mvcc.Cell{Table: 4, Row: "b", Column: "long"}
	commit(t, s, rawPut(long, 1<<20, 'x'))
	rows := store.Rows{Table: 4, Row: "a\x00", EndTable: 5, EndRow: "n", Bounded: true}
	snap := s.SnapWithLocks()
	for c := snap.Cursor(rows); ; {
		b := new(store.Batch)
		n, err := c.Delete(b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		commit(t, s, b)
	}
	snap.Close()
	snap = s.SnapWithLocks()
	defer snap.Close()
	for _, e := range all {
		_, ok, err := snap.Get(e.Key)
		if want := !inRows(rows, e.table, e.row); ok != want || err != nil {
			t.Fatalf("table %d row %q: there is %v, want %v (%v)", e.table, e.row, ok, want, err)
		}
	}
	if n := store.CountPrefix(snap, "c"); n != 0 {
		t.Fatalf("%d chunks of long values are left", n)
	}
}

// An entry larger than a piece is sent alone; entries outside the range are refused.
func TestFilling(t *testing.T) {
	rows := store.Rows{Table: 4, Row: "b", EndTable: 4, EndRow: "n", Bounded: true}
	key := func(g mvcc.Group, table mvcc.TableID, row string) store.Entry {
		return store.Entry{
			Key: store.AppendKey(nil, g, mvcc.Cell{Table: table, Row: row, Column: "c"}, 1),
		}
	}
	f := store.NewFilling(rows)
	steps := []struct {
		e  store.Entry
		ok bool
	}{
		{key(mvcc.GroupData, 4, "b"), true},
		{key(mvcc.GroupData, 4, "b"), false}, // repeated
		{key(mvcc.GroupData, 4, "a"), false}, // before the range
		{key(mvcc.GroupData, 4, "n"), false}, // behind it
		{key(mvcc.GroupData, 5, "c"), false},
		{store.Entry{Key: []byte("T\x00\x00\x00\x00\x00\x00\x00\x01")}, false}, // a tablet's state
		{store.Entry{Key: []byte("node identity")}, false},
		{store.Entry{}, false},
		{key(mvcc.GroupLock, 4, "c"), true},
		{key(mvcc.GroupData, 4, "m"), false}, // out of order
		{key(mvcc.GroupWrite, 4, "c"), true},
	}
	for i, step := range steps {
		err := f.Check(step.e)
		if step.ok != (err == nil) || (err != nil && !errors.Is(err, store.ErrForeignEntry)) {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

func TestLargeEntryTravelsAlone(t *testing.T) {
	s := open(t, "")
	for _, row := range []string{"a", "b", "c"} {
		commit(t, s, rawPut(mvcc.Cell{Table: 4, Row: row, Column: "c"},
			1+1000*(len(row)+int(row[0]-'a')*600), 'x'))
	}
	snap := s.SnapWithLocks()
	defer snap.Close()
	c := snap.Cursor(store.Rows{Table: 4})
	var sizes []int
	for {
		entries, err := c.Next(100, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		sizes = append(sizes, len(entries))
	}
	if !slices.Equal(sizes, []int{1, 1, 1}) {
		t.Fatalf("pieces of %v entries", sizes)
	}
}

// Staged entries are invisible in the rows, are returned with their own keys, and are gone after
// their deletion.
func TestStaged(t *testing.T) {
	s := open(t, "")
	rng := rand.New(rand.NewPCG(1, 2))
	b := new(store.Batch)
	var want []store.Entry
	for i := range 20 {
		e := store.Entry{
			Key: store.AppendKey(nil, mvcc.GroupRaw,
				mvcc.Cell{Table: 9, Row: fmt.Sprintf("r%02d", i), Column: "c"}, 0),
			Value: bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(400_000)),
		}
		size, entries := store.StageCost(e)
		haveSize, haveEntries := b.Size(), b.Len()
		b.Stage(5, e)
		if b.Size()-haveSize > size || b.Len()-haveEntries != entries {
			t.Fatalf("staging costs %d in %d, not at most %d in %d", b.Size()-haveSize,
				b.Len()-haveEntries, size, entries)
		}
		want = append(want, e)
	}
	b.Stage(7, want[0])
	commit(t, s, b)
	snap := s.SnapWithLocks()
	if entries, err := snap.Cursor(store.Rows{}).Next(10, 1<<20); len(entries) > 0 || err != nil {
		t.Fatalf("staged entries are seen: %d %v", len(entries), err)
	}
	if ids, err := snap.StagedTablets(); !slices.Equal(ids, []uint64{5, 7}) || err != nil {
		t.Fatalf("staged for %v %v", ids, err)
	}
	got, err := snap.Staged(5).Next(100, 1<<30)
	if err != nil || !slices.EqualFunc(got, want, func(a, b store.Entry) bool {
		return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
	}) {
		t.Fatalf("%d staged entries come back otherwise: %v", len(got), err)
	}
	snap.Close()
	snap = s.Snap()
	b = new(store.Batch)
	if n, err := snap.Staged(5).Delete(b); n != 20 || err != nil {
		t.Fatalf("deleted %d %v", n, err)
	}
	snap.Close()
	commit(t, s, b)
	snap = s.Snap()
	defer snap.Close()
	if ids, err := snap.StagedTablets(); !slices.Equal(ids, []uint64{7}) || err != nil {
		t.Fatalf("staged for %v %v after the deletion", ids, err)
	}
}
