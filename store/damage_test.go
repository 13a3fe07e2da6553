package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

const (
	rotRows  = 400
	rotBlock = 4 << 10 // approximately Badger's
)

func rotValue(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "value %06d ", i), 8) }

// quiet makes Badger compact only on request.
func quiet(o *store.Options) {
	o.MinFreeBytes = store.DefaultMinFreeBytes
	o.FreeBytes = func() (uint64, error) { return 1 << 40, nil }
}

// putRows commits rows.
func putRows(t *testing.T, s *store.Store, n int) {
	t.Helper()
	b := new(store.Batch)
	for i := range n {
		w := mvcc.Write{CommitTS: 9, StartTS: 8, Kind: mvcc.KindPut, Value: rotValue(i)}
		b.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupWrite, Cell: cell(fmt.Sprintf("row %06d", i), "c"), Write: &w,
		})
	}
	commit(t, s, b)
}

// tabled creates a store with rows in a table below level 0 and one of them again in level 0, and
// returns the lower table's name. The store is closed.
func tabled(t *testing.T, dir string) (name string) {
	t.Helper()
	s := open(t, dir)
	for again := true; again; again = store.LevelZero(s) > 0 { // one or two tables stay there unless compacted
		putRows(t, s, rotRows)
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, quiet)
	putRows(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, rotValue(rotRows-1)) {
			return name
		}
	}
	t.Fatalf("no table has the rows: %v", names)
	return ""
}

// flip changes one bit of a file; a second call with the same arguments restores it.
func flip(t *testing.T, name string, at int64) { flipBits(t, name, at, 1<<(at%8)) }

func flipBits(t *testing.T, name string, at int64, bits byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= bits
	if _, err := f.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
}

// inValue returns the position of row i's value in the table.
func inValue(t *testing.T, name string, i int) int64 {
	t.Helper()
	data, err := os.ReadFile(name)
	at := bytes.Index(data, rotValue(i))
	if err != nil || at < 0 {
		t.Fatalf("no value of row %d: %v", i, err)
	}
	return int64(at)
}

// isDamage checks that err is typed and names the file.
func isDamage(t *testing.T, what string, err error, name string) {
	t.Helper()
	var damaged *store.DamagedError
	switch {
	case !errors.Is(err, store.ErrDamaged) || !errors.As(err, &damaged):
		t.Errorf("BIT-ROT: %s: %v, want ErrDamaged", what, err)
	case damaged.File != name || !strings.Contains(err.Error(), name):
		t.Errorf("%s: the error does not name %s: %v", what, name, err)
	}
}

// isOver checks that a store can be neither read, written nor reopened.
func isOver(t *testing.T, s *store.Store, dir, name string) {
	t.Helper()
	isDamage(t, "damaged", s.Damaged(), name)
	snap := s.Snap()
	_, _, err := snap.Newest(cell("row 000001", "c"))
	isDamage(t, "lookup", err, name)
	n := 0
	for _, err = range snap.Cells(mvcc.Span{Table: 16}, false) {
		n++
	}
	isDamage(t, "scan", err, name)
	if n != 1 {
		t.Errorf("a scan gave %d results, want the error alone", n)
	}
	snap.Close()
	err = s.StateWriter().Commit([]*store.Batch{round(1, 1)})
	isDamage(t, "commit", err, name)
	if !errors.Is(err, store.ErrFailed) {
		t.Errorf("commit: %v, want ErrFailed", err)
	}
	isDamage(t, "compact", s.Compact(), name)
	_ = s.Close()
	_, err = store.Open(store.Options{Dir: dir, MinFreeBytes: 1})
	isDamage(t, "open again", err, name)
}

// A store with a flipped bit in a table is not opened. The test flips several bits of each block,
// and every bit of the index and of the bytes after it.
func TestBitRotAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	putRows(t, s, rotRows)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(names) != 1 {
		t.Fatalf("tables: %v, %v", names, err)
	}
	name := names[0]
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	try := func(at int64) {
		flip(t, name, at)
		defer flip(t, name, at)
		s, err := store.Open(store.Options{Dir: dir, MinFreeBytes: 1})
		if err == nil {
			_ = s.Close()
		}
		isDamage(t, fmt.Sprintf("bit of byte %d of %d", at, size), err, name)
	}
	for at := int64(0); at < size && !t.Failed(); at += rotBlock/7 + 1 {
		try(at)
	}
	for at := size - 40; at < size && !t.Failed(); at++ {
		try(at)
	}
	if t.Failed() {
		return
	}
	s = open(t, dir)
	if err := s.Verify(); err != nil {
		t.Errorf("nothing is damaged any more: %v", err)
	}
}

// Damage during operation is found by any verification of tables, and ends the store.
func TestBitRotWhileOpen(t *testing.T) {
	span := store.Rows{Table: 16, EndTable: 17, Bounded: true}
	for _, c := range []struct {
		name string
		find func(t *testing.T, s *store.Store, name string)
	}{
		{"verified", func(t *testing.T, s *store.Store, name string) {
			isDamage(t, "verify", s.Verify(), name)
		}},
		{"sent", func(t *testing.T, s *store.Store, name string) {
			store.ForgetVerified(s) // the scrubber may have verified it before the damage
			isDamage(t, "rows", s.VerifyRows(span), name)
		}},
		{"scrubbed", func(_ *testing.T, s *store.Store, _ string) { store.ScrubAll(s, 3) }},
		{"compacted in full", func(t *testing.T, s *store.Store, name string) {
			isDamage(t, "compact", s.Compact(), name)
		}},
		// Badger compacts at any time, and writes the damage with a matching checksum.
		{"compacted", func(t *testing.T, s *store.Store, _ string) {
			store.Replaced(s)
			if err := store.Flatten(s); err != nil {
				t.Fatal(err)
			}
			store.Replaced(s)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			name := tabled(t, dir)
			s := open(t, dir, quiet)
			flip(t, name, inValue(t, name, rotRows/2))
			c.find(t, s, name)
			isOver(t, s, dir, name)
		})
	}
}

// A compaction that ends before the store closes is verified too.
func TestBitRotAtClose(t *testing.T) {
	dir := t.TempDir()
	name := tabled(t, dir)
	s := open(t, dir, quiet)
	store.Replaced(s)
	flip(t, name, inValue(t, name, rotRows/2))
	if err := store.Flatten(s); err != nil {
		t.Fatal(err)
	}
	found := errors.Join(s.Close(), s.Damaged()) // or as soon as the compaction ended
	isDamage(t, "close", found, name)
	_, err := store.Open(store.Options{Dir: dir, MinFreeBytes: 1})
	isDamage(t, "open again", err, name)
}

// TestBitRotThatIsRead: an undecodable entry, found by a lookup or by a scan, causes the
// verification of all tables.
func TestBitRotThatIsRead(t *testing.T) {
	for name, read := range map[string]func(snap *store.Snap) error{
		"lookup": func(snap *store.Snap) error {
			_, _, err := snap.Newest(cell("row 000007", "c"))
			return err
		},
		"scan": func(snap *store.Snap) (err error) {
			for _, err = range snap.Cells(mvcc.Span{Table: 16}, false) {
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { bitRotThatIsRead(t, read) })
	}
}

func bitRotThatIsRead(t *testing.T, read func(snap *store.Snap) error) {
	dir := t.TempDir()
	name := tabled(t, dir)
	s := open(t, dir, quiet)
	snap := s.Snap()
	defer snap.Close()
	flipBits(t, name, inValue(t, name, 7)-10, 0x7f) // the record's kind, before its timestamps
	if err := read(snap); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a record of no kind: %v, want ErrCorrupt", err)
	}
	found := time.NewTicker(time.Millisecond)
	defer found.Stop()
	for deadline := time.Now().Add(time.Minute); s.Damaged() == nil &&
		time.Now().Before(deadline); {
		<-found.C
	}
	isOver(t, s, dir, name)
}
