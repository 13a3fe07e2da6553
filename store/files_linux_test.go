package store_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/space"
	"github.com/percolator-go/percolator/test/disk"
)

// The environment makes this test binary a process that runs out of a resource.
const (
	shortDirEnv  = "STORE_SHORT_DIR"
	shortWhatEnv = "STORE_SHORT_OF"
)

const (
	fileRows  = 60_000                 // about ten tables
	fileOpens = space.MinFreeFiles * 2 // descriptors that the process may open for the store
)

// shortOptions has small tables, and Badger compacts on request only.
func shortOptions(dir string, log io.Writer) store.Options {
	o := store.Options{Dir: dir, MemTableSize: 2 << 20, ReclaimInterval: -1}
	quiet(&o)
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	return o
}

// putFileRows commits rows with a value each, in batches.
func putFileRows(s *store.Store) error {
	for from := 0; from < fileRows; from += 2000 {
		b := new(store.Batch)
		for i := from; i < from+2000; i++ {
			w := mvcc.Write{CommitTS: 9, StartTS: 8, Kind: mvcc.KindPut, Value: rotValue(i)}
			b.PutMutation(&mvcc.Mutation{
				Group: mvcc.GroupWrite, Cell: cell(fmt.Sprintf("row %06d", i), "c"), Write: &w,
			})
		}
		if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
			return err
		}
	}
	return nil
}

// twoLevels commits the rows until they are in tables of level 0 and of another level.
func twoLevels(s *store.Store) error {
	for again := true; again; again = store.LevelZero(s) > 0 { // one or two tables stay there unless compacted
		if err := errors.Join(putFileRows(s), s.Compact()); err != nil {
			return err
		}
	}
	return putFileRows(s)
}

// checkFileRows returns an error if a row is missing.
func checkFileRows(s *store.Store) error {
	snap := s.Snap()
	defer snap.Close()
	n := 0
	for _, err := range snap.Cells(mvcc.Span{Table: 16}, false) {
		if err != nil {
			return err
		}
		n++
	}
	if n != fileRows {
		return fmt.Errorf("LOST: %d of %d rows are left", n, fileRows)
	}
	return nil
}

// ballast is another program's use of a resource.
type ballast struct {
	what  string
	dir   string
	files []*os.File
	maps  [][]byte
	names []string
}

// take takes so much of the resource that about left are left for the store.
func (b *ballast) take(s *store.Store, left uint64) error {
	for free := store.FreeOf(s, space.Resource(b.what)); free > left; free-- {
		var err error
		switch space.Resource(b.what) {
		case space.Descriptors:
			var f *os.File
			f, err = os.Open(os.DevNull)
			b.files = append(b.files, f)
		case space.Maps:
			// Adjacent maps of the same kind would be merged.
			var m []byte
			m, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE*(len(b.maps)%2),
				unix.MAP_ANON|unix.MAP_PRIVATE)
			b.maps = append(b.maps, m)
		case space.Inodes:
			name := filepath.Join(b.dir, fmt.Sprintf("others%d", len(b.names)))
			err = os.WriteFile(name, nil, 0o600)
			b.names = append(b.names, name)
		}
		switch { // other processes take some too
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			return nil
		case err != nil:
			return fmt.Errorf("take %s with %d left: %w", b.what, free, err)
		}
	}
	store.FreeOf(s, space.Resource(b.what)) // counts memory maps
	return nil
}

func (b *ballast) free() (err error) {
	for _, f := range b.files {
		err = errors.Join(err, f.Close())
	}
	for _, m := range b.maps {
		err = errors.Join(err, unix.Munmap(m))
	}
	for _, name := range b.names {
		err = errors.Join(err, os.Remove(name))
	}
	b.files, b.maps, b.names = nil, nil, nil
	return err
}

// lines forwards the log's lines that contain a text.
type lines struct {
	text string
	seen chan struct{}
}

func (l lines) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.text) {
		l.seen <- struct{}{}
	}
	return len(p), nil
}

// TestShortProcess is the process of TestCompactionWaitsForFiles, not a test.
func TestShortProcess(t *testing.T) {
	dir := os.Getenv(shortDirEnv)
	if dir == "" {
		t.Skip("the process of TestCompactionWaitsForFiles")
	}
	if err := shortProcess(dir, os.Getenv(shortWhatEnv)); err != nil {
		t.Fatal(err)
	}
	os.Exit(0) // with a compaction that waits forever
}

func shortProcess(dir, what string) error {
	if space.Resource(what) == space.Descriptors {
		lim := unix.Rlimit{Cur: fileOpens, Max: fileOpens}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			return err
		}
	}
	waits := lines{text: "compaction waits", seen: make(chan struct{}, 100)}
	s, err := store.Open(shortOptions(dir, waits))
	if err != nil {
		return err
	}
	if err := twoLevels(s); err != nil {
		return err
	}
	others := &ballast{what: what, dir: filepath.Dir(dir)}
	if err := refusals(s, others); err != nil {
		return err
	}
	flattened, timeout := make(chan error, 1), time.NewTimer(30*time.Second)
	defer timeout.Stop()
	flatten := func() { flattened <- store.Flatten(s) }
	go flatten()
	select {
	case <-waits.seen:
	case err := <-flattened:
		return errors.Join(err, others.free(), checkFileRows(s),
			fmt.Errorf("the compaction did not wait for %s", what))
	case <-timeout.C:
		return errors.New("the compaction neither waits nor ends")
	}
	if err := checkFileRows(s); err != nil {
		return err
	}
	// The compaction continues once the resource is free again.
	if err := errors.Join(others.free(), <-flattened, checkFileRows(s), s.Verify()); err != nil {
		return err
	}
	// If the resource is never freed, the store closes without the compaction.
	if err := errors.Join(putFileRows(s), others.take(s, fewFiles(what))); err != nil {
		return err
	}
	for len(waits.seen) > 0 {
		<-waits.seen // of a compaction that has continued
	}
	go flatten()
	<-waits.seen
	closing := s.Close()
	if !errors.Is(closing, store.ErrCompactionStuck) {
		return fmt.Errorf("close: %w, want ErrCompactionStuck", closing)
	}
	return nil
}

// fewFiles returns the amount with which a compaction fails. The Go runtime ends the process if it
// gets no memory map, so it keeps some.
func fewFiles(what string) uint64 {
	if space.Resource(what) == space.Maps {
		return 40
	}
	return 3
}

// refusals takes a resource step by step and checks the store's refusals.
func refusals(s *store.Store, others *ballast) error {
	short := func(when string, err error, want bool) error {
		var e *space.ShortError
		if got := errors.As(err, &e) && string(e.What) == others.what; got != want {
			return fmt.Errorf("%s: %v; refused for want of %s: %t", when, err, others.what, want)
		}
		return nil
	}
	for _, step := range []struct {
		left                       uint64
		blocked, exhausted, commit bool
	}{
		{left: space.MinFreeFiles + 100},
		{left: space.MinFreeFiles - 20, blocked: true},
		{left: space.MinFreeFiles/4 + 20, blocked: true, exhausted: true},
		{left: fewFiles(others.what), blocked: true, exhausted: true, commit: true},
	} {
		if err := others.take(s, step.left); err != nil {
			return err
		}
		_ = s.Room(0) // measures
		when := fmt.Sprintf("%d %s left", step.left, others.what)
		if err := errors.Join(
			short(when+": write", s.WriteBlocked(), step.blocked),
			short(when+": any entry", s.Exhausted(), step.exhausted),
			short(when+": commit", s.StateWriter().Commit([]*store.Batch{round(1, 1)}), step.commit),
		); err != nil {
			return err
		}
	}
	return nil
}

// While another program leaves almost no inodes, descriptors or memory maps, writes are refused
// with the name of the resource, a compaction waits rather than lose a table, and nothing is
// missing after the process has ended and there is enough again.
func TestCompactionWaitsForFiles(t *testing.T) {
	for _, what := range []space.Resource{space.Inodes, space.Descriptors, space.Maps} {
		t.Run(strings.ReplaceAll(string(what), " ", "_"), func(t *testing.T) {
			dir := t.TempDir()
			if what == space.Inodes {
				dir = disk.New(t, 256<<20, "-N", "2000").Dir()
			}
			dir = filepath.Join(dir, "store")
			cmd := exec.Command(os.Args[0], "-test.run=^TestShortProcess$", "-test.timeout=3m")
			cmd.Env = append(os.Environ(), shortDirEnv+"="+dir, shortWhatEnv+"="+string(what))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, name := range []string{"others0", "others1"} {
				if _, err := os.Stat(filepath.Join(filepath.Dir(dir), name)); (err == nil) != (what == space.Inodes) {
					t.Errorf("%s: %v", name, err)
				}
			}
			names, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "others*"))
			for _, name := range names {
				err = errors.Join(err, os.Remove(name))
			}
			if err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(shortOptions(dir, io.Discard))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(checkFileRows(s), s.Compact(), checkFileRows(s), s.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A table that Badger failed to create, here because its file already exists, is detected as
// missing before its sources are deleted permanently.
func TestLostTableIsFound(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(shortOptions(dir, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	// Closing writes all memtables to tables.
	if err := errors.Join(twoLevels(s), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(shortOptions(dir, io.Discard)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	store.Replaced(s)
	names, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	var last int
	for _, name := range names {
		var id int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d.sst", &id); err != nil {
			t.Fatal(err)
		}
		last = max(last, id)
	}
	for id := last + 2; id < last+100; id += 3 {
		name := filepath.Join(dir, "db", fmt.Sprintf("%06d.sst", id))
		if err := os.WriteFile(name, []byte("somebody else's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Flatten(s); err != nil {
		t.Fatal(err)
	}
	if checkFileRows(s) == nil {
		t.Fatal("nothing is missing: this test does not see what it is for")
	}
	store.Replaced(s)
	deadline, tick := time.NewTimer(5*time.Second), time.NewTicker(time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !errors.Is(s.Damaged(), store.ErrDamaged) { // the worker may have found it first, and report it next
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("LOST: a table was left out of a compaction, and the store reports %v", s.Damaged())
		}
	}
}

// A store with fewer descriptors than required is refused, with the number.
func TestOpenNeedsDescriptors(t *testing.T) {
	if dir := os.Getenv(shortDirEnv); dir != "" {
		lim := unix.Rlimit{Cur: 64, Max: 64}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
		_, err := store.Open(store.Options{Dir: dir})
		fmt.Println(err)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOpenNeedsDescriptors$")
	cmd.Env = append(os.Environ(), shortDirEnv+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	for _, want := range []string{" of 64 file descriptors are free", "raise the limit (ulimit -n, LimitNOFILE) to "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q: %s", err, want, out)
		}
	}
}

// A Go program raises its soft limit of descriptors to the hard limit at its start, and the store
// relies on it.
func TestDescriptorsAreRaised(t *testing.T) {
	if os.Getenv(shortDirEnv) != "" {
		var lim unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
		fmt.Printf("limits %d %d %v\n", lim.Cur, lim.Max, err)
		return
	}
	cmd := exec.Command("sh", "-c", `ulimit -Sn 100 && ulimit -Hn 1000 && exec "$0" -test.run=^TestDescriptorsAreRaised$`,
		os.Args[0])
	cmd.Env = append(os.Environ(), shortDirEnv+"=none")
	// Go keeps one.
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "limits 999 1000 <nil>") {
		t.Errorf("%v: %s", err, out)
	}
}
