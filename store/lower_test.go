package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

func memTable(bytes int64) func(*store.Options) {
	return func(o *store.Options) { o.MemTableSize = bytes }
}

// killed copies the directory of an open, idle store, as a kill -9 leaves it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	for { // again, if a flush removes a file during the copy
		to := t.TempDir()
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			return to
		}
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func recorded(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "MEMTABLE"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// TestMemTableIsLowered: a store killed with large memtables opens with small ones, complete; also
// one without a record of their size. TestKill kills stores repeatedly in this way.
func TestMemTableIsLowered(t *testing.T) {
	const large, small, values = 16 << 20, 2 << 20, 40
	at := func(i int) mvcc.Cell { return cell(fmt.Sprint(i), "c") }
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("known %t", known), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, memTable(large))
			value := bytes.Repeat([]byte("v"), 200<<10)
			for i := range values { // half the size of the memtable
				b := &store.Batch{}
				b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: at(i), Value: value})
				commit(t, s, b)
			}
			dir = killed(t, dir)
			if !known {
				if err := os.Remove(filepath.Join(dir, "MEMTABLE")); err != nil {
					t.Fatal(err)
				}
			}
			for _, size := range []int64{small, large, small} {
				s := open(t, dir, memTable(size))
				snap := s.Snap()
				for i := range values {
					got, ok, err := snap.Raw(at(i))
					if err != nil || !ok || !bytes.Equal(got, value) {
						t.Fatalf("memtables of %d: key %d: %d bytes, %t, %v", size, i, len(got), ok,
							err)
					}
				}
				snap.Close()
				if text := recorded(t, dir); text != fmt.Sprint(size) {
					t.Errorf("memtables of %d are recorded as %s", size, text)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestDamagedMemTableRecord: an impossible size of a memtable is refused.
func TestDamagedMemTableRecord(t *testing.T) {
	dir := t.TempDir()
	makeStore(t, dir)
	write(t, dir, "MEMTABLE", "many\n")
	if _, err := store.Open(store.Options{Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "MEMTABLE") {
		t.Errorf("opened: %v", err)
	}
}

// TestSizesFollowFromMemory: the maximum memory of memtables and compactions is a fraction of the
// available memory.
func TestSizesFollowFromMemory(t *testing.T) {
	const compactions, parts, waiting, memTables = 2, 5, 8, 5
	var before store.Sizes
	for memory := uint64(512 << 20); memory <= 64<<30; memory += memory / 3 {
		s := store.SizesFor(memory)
		if s.MemTable < before.MemTable || s.Table < before.Table || s.HotCells < before.HotCells ||
			before.Grow && !s.Grow {
			t.Errorf("%d bytes: %+v, after %+v", memory, s, before)
		}
		if hot := uint64(s.HotCells) << 9; hot > memory/64 {
			t.Errorf("%d bytes: %d bytes for the newest entries of cells", memory, hot)
		}
		before = s
		if s.Grow {
			continue
		}
		taken := memTables*s.MemTable*4/3 + compactions*(parts+waiting)*6*s.Table
		if uint64(taken) > memory/2 {
			t.Errorf("%d bytes: %+v may take %d", memory, s, taken)
		}
	}
	if s := store.SizesFor(0); s != before {
		t.Errorf("without a bound %+v, with much memory %+v", s, before)
	}
}
