package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/version"
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

// versionText is the content of VERSION in a store of this format.
const versionText = "percolator store\nformat 2\nlog 0102030405060708090a0b0c0d0e0f10\n"

// dirCase is a directory and the expected result of Open.
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

// newOrForeign are directories that never held a complete store.
func newOrForeign() []dirCase {
	return []dirCase{
		{name: "missing directory", make: func(*testing.T, string) {}},
		{name: "empty directory", make: func(t *testing.T, dir string) {
			_ = os.MkdirAll(dir, 0o700)
		}},
		{name: "root of a file system", make: func(t *testing.T, dir string) {
			_ = os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700)
		}},
		{name: "killed before anything was written", make: func(t *testing.T, dir string) {
			write(t, dir, "LOCK", "")
		}},
		{name: "killed while it was made", make: func(t *testing.T, dir string) {
			write(t, dir, "VERSION.new", versionText[:9])
			write(t, filepath.Join(dir, "db"), "MANIFEST", "half")
		}},
		{name: "a store", make: makeStore},
		{name: "foreign files", want: store.ErrForeign, make: func(t *testing.T, dir string) {
			write(t, dir, "notes.txt", "mine")
		}},
		{name: "a bare badger directory", want: store.ErrForeign,
			make: func(t *testing.T, dir string) {
				db, err := badger.Open(badger.DefaultOptions(dir).WithLogger(nil))
				if err == nil {
					err = db.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}},
		{name: "another program's version", want: store.ErrForeign,
			make: func(t *testing.T, dir string) {
				write(t, dir, "VERSION", "12\n")
			}},
	}
}

// damagedOrOther are stores with a part missing, or of another kind.
func damagedOrOther() []dirCase {
	return []dirCase{
		{name: "version cut short", want: store.ErrDamaged, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			write(t, dir, "VERSION", "perco")
		}},
		{name: "a later version", want: &store.VersionError{}, make: func(t *testing.T, dir string) {
			makeStore(t, dir)
			write(t, dir, "VERSION", strings.Replace(versionText, "format 2",
				fmt.Sprintf("format %d", version.Known().Newest+1), 1))
		}},
		{name: "the format before", want: &store.VersionError{},
			make: func(t *testing.T, dir string) {
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

// A directory of another program, or an incomplete one, is refused with an error that identifies
// it; the store is recreated only where nothing can be lost.
func TestOpenRefuses(t *testing.T) {
	for _, c := range slices.Concat(newOrForeign(), damagedOrOther(), logCases()) {
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
	_, before := os.Stat(filepath.Join(dir, "db"))
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
	case c.want != nil && c.want != errAny && !errors.Is(err, c.want) &&
		!(errors.As(c.want, &other) && errors.As(err, &other)):
		t.Errorf("%v, want %v", err, c.want)
	case err != nil && !strings.Contains(err.Error(), dir):
		t.Errorf("the error does not name the directory: %v", err)
	}
	if c.want == store.ErrForeign {
		if _, err := os.Stat(filepath.Join(dir, "db")); err == nil && before != nil {
			t.Error("a database was made in a foreign directory")
		}
	}
}

// One process at a time: a second Open of the same directory, here by the same process, is refused,
// and succeeds later.
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

// Empty log files, which a kill can leave behind, do not prevent a store from opening (Badger issue
// 2207).
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

// logCases are stores with a missing or misplaced log.
func logCases() []dirCase {
	elsewhere := func(dir string) func(*store.Options) {
		return func(o *store.Options) { o.LogDir = dir }
	}
	return []dirCase{
		{name: "the log is missing", want: store.ErrLogMissing,
			make: func(t *testing.T, dir string) {
				makeStore(t, dir)
				_ = os.RemoveAll(filepath.Join(dir, "log"))
			}},
		{name: "a segment is missing", want: store.ErrDamaged,
			make: func(t *testing.T, dir string) {
				s := open(t, dir)
				begin(t, s, 3)
				for i := range uint64(5) {
					appendTo(t, s, 3, []*raftpb.Entry{entry(11+i, 5, make([]byte, 9<<20))}, nil)
				}
				_ = s.Close()
				segments, _ := filepath.Glob(filepath.Join(dir, "log", "*.log"))
				if len(segments) < 3 {
					t.Fatal("there are too few segments")
				}
				_ = os.Remove(segments[1])
			}},
		{name: "the log of another store", want: store.ErrForeignLog,
			make: func(t *testing.T, dir string) {
				makeStore(t, dir)
				makeStore(t, dir+".other")
				_ = os.RemoveAll(filepath.Join(dir, "log"))
				if err := os.Rename(filepath.Join(dir+".other", "log"),
					filepath.Join(dir, "log")); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "VERSION names no log", want: store.ErrDamaged,
			make: func(t *testing.T, dir string) {
				makeStore(t, dir)
				write(t, dir, "VERSION", "percolator store\nformat 2\nlog 0102\n")
			}},
		{name: "a version without its last line", want: store.ErrDamaged,
			make: func(t *testing.T, dir string) {
				makeStore(t, dir)
				write(t, dir, "VERSION", "percolator store\nformat 2\n")
			}},
		{name: "a format of more lines", want: &store.VersionError{},
			make: func(t *testing.T, dir string) {
				write(t, dir, "VERSION", "percolator store\nformat 20\nlog 01\nmore\n")
			}},
		{name: "a version that names releases, and the name is missing", want: store.ErrDamaged,
			make: func(t *testing.T, dir string) {
				makeStore(t, dir)
				write(t, dir, "VERSION", strings.Replace(versionText, "format 2", "format 5", 1))
			}},
		{name: "one directory for both", want: errAny, make: makeStore,
			opts: func(o *store.Options) {
				o.LogDir = o.Dir + "/."
			}},
		{name: "another directory than before", want: store.ErrLogMissing, make: makeStore,
			opts: func(o *store.Options) { elsewhere(o.Dir + ".log")(o) }},
		{name: "a directory of its own, and then the log has moved",
			make: func(t *testing.T, dir string) {
				if err := open(t, dir, elsewhere(dir+".first")).Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(dir+".first", dir+".log"); err != nil {
					t.Fatal(err)
				}
			},
			opts: func(o *store.Options) { elsewhere(o.Dir + ".log")(o) }},
	}
}

// errAny is any error.
var errAny = errors.New("any")

// A log belongs to one process at a time, in any location, and foreign files are left unchanged.
func TestLogInUse(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	begin(t, s, 3)
	spare := filepath.Join(dir, "log", "0000000000000000.free")
	write(t, filepath.Dir(spare), filepath.Base(spare), "")
	other := store.Options{
		Dir: filepath.Join(t.TempDir(), "other"), LogDir: filepath.Join(dir, "log"),
	}
	if _, err := store.Open(other); !errors.Is(err, store.ErrInUse) {
		t.Errorf("in use: %v, want ErrInUse", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(other); !errors.Is(err, store.ErrForeignLog) {
		t.Errorf("not in use: %v, want ErrForeignLog", err)
	}
	if _, err := os.Stat(spare); err != nil {
		t.Errorf("a file of another store's log is gone: %v", err)
	}
	other.LogDir = ""
	if s, err := store.Open(other); err != nil {
		t.Errorf("with a log of its own, after that: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	openLog(t, open(t, dir), 3)
}

// An interrupted Open of a new store is started over, whatever the location of the log, and finds
// the log that it has created.
func TestOpenCutShort(t *testing.T) {
	for _, where := range []string{"", "log"} {
		for cut, spoil := range map[string]func(dir, log string) error{
			"before VERSION": func(string, string) error { return nil },
			"before the database": func(dir, _ string) error {
				return os.RemoveAll(filepath.Join(dir, "db"))
			},
			"in the database": func(dir, _ string) error {
				return os.Truncate(filepath.Join(dir, "db", "MANIFEST"), 3)
			},
			"before the log": func(dir, log string) error {
				return errors.Join(os.RemoveAll(filepath.Join(dir, "db")), os.RemoveAll(log))
			},
			"while VERSION.new is written": func(dir, log string) error {
				return errors.Join(os.RemoveAll(filepath.Join(dir, "db")), os.RemoveAll(log),
					os.Truncate(filepath.Join(dir, "VERSION.new"), 21))
			},
			"before VERSION.new": func(dir, log string) error {
				return errors.Join(os.RemoveAll(filepath.Join(dir, "db")), os.RemoveAll(log),
					os.Remove(filepath.Join(dir, "VERSION.new")),
					os.RemoveAll(filepath.Join(dir, "MEMTABLE")))
			},
		} {
			dir := filepath.Join(t.TempDir(), "store")
			log, options := filepath.Join(dir, "log"), func(*store.Options) {}
			if where != "" {
				log = filepath.Join(t.TempDir(), where)
				options = func(o *store.Options) { o.LogDir = log }
			}
			if err := open(t, dir, options).Close(); err != nil {
				t.Fatal(err)
			}
			err := os.Rename(filepath.Join(dir, "VERSION"), filepath.Join(dir, "VERSION.new"))
			if err = errors.Join(err, spoil(dir, log)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s, err := store.Open(store.Options{
					Dir: dir, LogDir: map[bool]string{true: log}[where != ""], MinFreeBytes: 1,
				})
				if err != nil {
					t.Fatalf("log %q, cut %s: %v", where, cut, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "VERSION.new")); err == nil {
				t.Errorf("log %q, cut %s: the store is not finished", where, cut)
			}
		}
	}
}

// A failed Open leaves nothing open: the directories can be opened once the cause is removed.
func TestFailedOpenLeavesNothing(t *testing.T) {
	files := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(names)
	}
	before := 0
	for i, c := range append(damagedOrOther(), logCases()...) {
		dir := filepath.Join(t.TempDir(), "store")
		c.make(t, dir)
		o := store.Options{Dir: dir, MinFreeBytes: 1}
		if c.opts != nil {
			c.opts(&o)
		}
		for try := range 2 {
			s, err := store.Open(o)
			if err == nil {
				err = s.Close()
			}
			if n := files(); try == 0 {
				before = n
			} else if n > before || errors.Is(err, store.ErrInUse) {
				t.Errorf("case %d, %s: %d files are open, and %d after the first try: %v", i,
					c.name, n, before, err)
			}
		}
	}
}
