package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/store"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// version is what a store of this format says of itself.
const version = "percolator store\nformat 2\nlog 0102030405060708090a0b0c0d0e0f10\n"

// dirCase is a directory and what Open makes of it.
type dirCase struct {
	name string
	make func(t *testing.T, dir string)
	opts func(*store.Options)
	want error // nil: it is opened
}

func makeStore(t *testing.T, dir string) {
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

// newOrForeign are directories that never held a whole store.
func newOrForeign() []dirCase {
	return []dirCase{
		{name: "missing directory", make: func(*testing.T, string) {}},
		{name: "empty directory", make: func(t *testing.T, dir string) { _ = os.MkdirAll(dir, 0o700) }},
		{name: "root of a file system", make: func(t *testing.T, dir string) { _ = os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700) }},
		{name: "killed before anything was written", make: func(t *testing.T, dir string) { write(t, dir, "LOCK", "") }},
		{name: "killed while it was made", make: func(t *testing.T, dir string) {
			write(t, dir, "VERSION.new", version[:9])
			write(t, filepath.Join(dir, "db"), "MANIFEST", "half")
		}},
		{name: "a store", make: makeStore},
		{name: "foreign files", want: store.ErrForeign, make: func(t *testing.T, dir string) { write(t, dir, "notes.txt", "mine") }},
		{name: "a bare badger directory", want: store.ErrForeign, make: func(t *testing.T, dir string) {
			db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
			if err == nil {
				err = db.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "another program's version", want: store.ErrForeign, make: func(t *testing.T, dir string) { write(t, dir, "VERSION", "12\n") }},
	}
}

// damagedOrOther are stores that lack something, or are of another kind.
func damagedOrOther() []dirCase {
	return []dirCase{
		{name: "version cut short", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			write(t, dir, "VERSION", "perco")
		}},
		{name: "a later format", want: &store.VersionError{}, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			write(t, dir, "VERSION", strings.Replace(version, "format 2", "format 3", 1))
		}},
		{name: "the format before", want: &store.VersionError{}, make: func(t *testing.T, dir string) {
			write(t, dir, "VERSION", "percolator store\nformat 1\nshared log\n")
		}},
		{name: "no database", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			_ = os.RemoveAll(filepath.Join(dir, "db"))
		}},
		{name: "no manifest", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			_ = os.Remove(filepath.Join(dir, "db", "MANIFEST"))
		}},
		{name: "manifest cut short", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			_ = os.Truncate(filepath.Join(dir, "db", "MANIFEST"), 5)
		}},
		{name: "a table is missing", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			s := open(t, dir)
			commit(t, s, round(1, 10))
			_ = s.Close()
			tables, _ := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
			if len(tables) == 0 {
				t.Fatal("no table was written")
			}
			_ = os.Remove(tables[0])
		}},
		{name: "a table cut short", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			s := open(t, dir)
			commit(t, s, round(1, 10))
			_ = s.Close()
			tables, _ := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
			_ = os.Truncate(tables[0], 20)
		}},
	}
}

// A directory that is not one of ours, or not whole, is refused with an error that says what it is; the store is made
// anew only where nothing can be lost.
func TestOpenRefuses(t *testing.T) {
	for _, c := range append(newOrForeign(), damagedOrOther()...) {
		t.Run(c.name, c.check)
	}
}

func (c dirCase) check(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	c.make(t, dir)
	o := store.Options{Dir: dir, MinFreeBytes: 1}
	if c.opts != nil {
		c.opts(&o)
	}
	s, err := store.Open(o)
	if err == nil {
		commit(t, s, round(2, 10))
		err = s.Close()
	}
	var other *store.VersionError
	switch {
	case c.want == nil && err != nil:
		t.Errorf("refused: %v", err)
	case c.want != nil && err == nil:
		t.Errorf("opened, want %v", c.want)
	case c.want != nil && !errors.Is(err, c.want) && !(errors.As(c.want, &other) && errors.As(err, &other)):
		t.Errorf("%v, want %v", err, c.want)
	case err != nil && !strings.Contains(err.Error(), dir):
		t.Errorf("the error does not name the directory: %v", err)
	}
	if c.want == store.ErrForeign {
		if _, err := os.Stat(filepath.Join(dir, "db")); err == nil {
			t.Error("a database was made in a foreign directory")
		}
	}
}

// One process at a time: a second Open of the same directory, here of the same process, is refused, and succeeds later.
func TestOpenInUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := store.Open(store.Options{Dir: dir}); !errors.Is(err, store.ErrInUse) {
		t.Errorf("%v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	open(t, dir)
}

// Empty log files, which a kill can leave behind, do not keep a store from opening (Badger issue 2207).
func TestOpenLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	commit(t, s, round(7, 10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000.mem", "00099.mem", "000099.vlog"} {
		write(t, filepath.Join(dir, "db"), name, "")
	}
	s = open(t, dir)
	snap := s.Snap()
	defer snap.Close()
	if n, err := readRound(snap, 10); n != 7 || err != nil {
		t.Errorf("round %d, %v", n, err)
	}
}
