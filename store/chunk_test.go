package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func rawPut(c mvcc.Cell, n int, fill byte) *store.Batch {
	b := new(store.Batch)
	b.PutMutation(&mvcc.Mutation{
		Group: mvcc.GroupRaw, Cell: c, Value: bytes.Repeat([]byte{fill}, n),
	})
	return b
}

func rawDelete(c mvcc.Cell) *store.Batch {
	b := new(store.Batch)
	b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: c, Delete: true})
	return b
}

// Long values are put, replaced by longer and shorter ones, and deleted, individually and within
// one Commit, and leave nothing behind; also after reopening.
func TestLongValues(t *testing.T) {
	const mib = 1 << 20
	c, other := cell("r", "c"), cell("s", "c")
	dir := t.TempDir()
	s := open(t, dir)
	check := func(step string, chunks, n int, fill byte) {
		t.Helper()
		snap := s.Snap()
		defer snap.Close()
		v, ok, err := snap.Raw(c)
		if err != nil || ok != (n >= 0) || n >= 0 &&
			!bytes.Equal(v, bytes.Repeat([]byte{fill}, n)) {
			t.Errorf("%s: %d bytes, %v, %v", step, len(v), ok, err)
		}
		if got := store.CountPrefix(snap, "c"); got != chunks {
			t.Errorf("%s: %d chunks, want %d", step, got, chunks)
		}
		cells := collect(t, snap.RawCells(mvcc.Span{Table: 16}))
		if want := map[bool]int{true: 2, false: 1}[n >= 0]; len(cells) != want || n >= 0 &&
			!bytes.Equal(cells[0].Value, v) {
			t.Errorf("%s: the scan shows %d cells", step, len(cells))
		}
	}
	commit(t, s, rawPut(other, 10, 'o'))
	commit(t, s, rawPut(c, 2*mib, 'a'))
	check("put", 8, 2*mib, 'a') // 2 MiB and a tag: nine parts, not counting the head
	commit(t, s, rawPut(c, mib, 'b'))
	check("shorter", 4, mib, 'b')
	commit(t, s, rawPut(c, 3*mib, 'c'))
	check("longer", 12, 3*mib, 'c')
	commit(t, s, rawPut(c, 3, 'd'))
	check("short", 0, 3, 'd')
	commit(t, s, rawPut(c, mib, 'e'), rawDelete(c))
	check("put and deleted at once", 0, -1, 0)
	commit(t, s, rawPut(c, 2*mib, 'f'))
	commit(t, s, rawDelete(c), rawPut(c, mib, 'g'))
	check("deleted and put at once", 4, mib, 'g')
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	check("reopened", 4, mib, 'g')
	commit(t, s, rawDelete(c))
	check("deleted", 0, -1, 0)
}

// More chunks than one Txn can delete are deleted too.
func TestManyChunksGo(t *testing.T) {
	const rows = 400
	s := open(t, "", func(o *store.Options) { o.MemTableSize = 2 << 20 })
	long := string(bytes.Repeat([]byte("k"), 1000)) // 400 chunk keys of 1 KB do not fit into 300 KB
	gone := new(store.Batch)
	for i := range rows {
		c := cell(fmt.Sprint(long, i), "c")
		commit(t, s, rawPut(c, 256<<10, 'x'))
		key, _ := store.EncodeMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: c, Delete: true})
		if i < rows/2 {
			gone.Delete(key)
		}
	}
	commit(t, s, gone)
	snap := s.Snap()
	defer snap.Close()
	if n := store.CountPrefix(snap, "c"); n != rows/2 {
		t.Errorf("%d chunks are left, want %d", n, rows/2)
	}
}

// TestMissingChunk: a missing chunk is an error, not a shorter value, and the scrubber learns of it.
func TestMissingChunk(t *testing.T) {
	s := open(t, "")
	c := cell("r", "c")
	commit(t, s, rawPut(c, 1<<20, 'x'))
	key, _ := store.EncodeMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: c, Delete: true})
	b := new(store.Batch)
	store.DeleteChunk(b, key, 2)
	commit(t, s, b)
	snap := s.Snap()
	defer snap.Close()
	scan := func() (err error) {
		for _, err = range snap.RawCells(mvcc.Span{Table: c.Table}) {
		}
		return err
	}
	lookup := func() error {
		_, _, err := snap.Raw(c)
		return err
	}
	for what, read := range map[string]func() error{"lookup": lookup, "scan": scan} {
		if err := read(); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
		if !store.Suspected(s) {
			t.Errorf("ROT-UNREPORTED: the scrubber does not learn of a %s that finds damage", what)
		}
	}
}

// TestNoRoomForALongValue: of a value larger than the given size only the head is read, and its
// length is known.
func TestNoRoomForALongValue(t *testing.T) {
	const n, start = 1 << 20, mvcc.Timestamp(7)
	s := open(t, t.TempDir())
	c := cell("r", "c")
	b := new(store.Batch)
	b.PutMutation(&mvcc.Mutation{
		Group: mvcc.GroupData, Cell: c, TS: start, Value: bytes.Repeat([]byte{'x'}, n),
	})
	store.DeleteChunk(b, store.AppendKey(nil, mvcc.GroupData, c, start), 2)
	commit(t, s, b)
	snap := s.Snap()
	defer snap.Close()
	if v, got, ok, err := snap.DataWithin(c, start, n/2); v != nil || got < n || !ok || err != nil {
		t.Errorf("without room: %d bytes of %d, %v, %v", len(v), got, ok, err)
	}
	if _, _, _, err := snap.DataWithin(c, start, 2*n); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("with room, and a part missing: %v", err)
	}
	if _, got, ok, err := snap.DataWithin(c, start+1, 0); got != 0 || ok || err != nil {
		t.Errorf("of a value that is not there: %d bytes, %v, %v", got, ok, err)
	}
}
