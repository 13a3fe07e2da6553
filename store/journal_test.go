package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// journaled is a store with small memtables, so that log files and journals change all the time.
func journaled(t *testing.T, dir string) *store.Store {
	return open(t, dir, func(o *store.Options) { o.MemTableSize = 2 << 20 })
}

// copyStore copies the files of a store as they are, and has change look at each. Nothing is written meanwhile, but Badger may
// make a table of a full memtable: then it begins anew.
func copyStore(t *testing.T, from string, change func(path string, data []byte) []byte) (to string) {
	t.Helper()
	files := func() string {
		names, err := filepath.Glob(filepath.Join(from, "*", "*"))
		manifest, err2 := os.ReadFile(filepath.Join(from, "db", "MANIFEST"))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q %x", names, manifest)
	}
	for {
		to = t.TempDir()
		before := files()
		err := copyFiles(from, to, change)
		if before != files() {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
}

func copyFiles(from, to string, change func(path string, data []byte) []byte) error {
	return filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), change(path, data), 0o600)
	})
}

// losePages is a power loss of a log file, of which nothing but its head was ever synced: some pages have reached the disk.
func losePages(rng *rand.Rand, kept int) func(string, []byte) []byte {
	const head, page = 20, 4096
	return func(path string, data []byte) []byte {
		if filepath.Ext(path) == ".mem" {
			for at := 0; at < len(data); at += page {
				if rng.IntN(100) >= kept {
					clear(data[max(at, head):min(at+page, len(data))])
				}
			}
		}
		return data
	}
}

// roundOf opens a store and says which round it holds, whole.
func roundOf(t *testing.T, dir string) uint64 {
	t.Helper()
	s := journaled(t, dir)
	snap := s.Snap()
	n, err := readRound(snap, 20)
	snap.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestJournalsRestore: whatever pages a power loss takes from Badger's log files, what was acknowledged is there, whichever log
// file and journal it is in, and no other journal is made than there are log files at a time.
func TestJournalsRestore(t *testing.T) {
	const rounds, seed = 1200, 5
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := journaled(t, dir)
	first, most := store.LogFile(s), 0
	for n := range uint64(rounds) {
		b := round(n+1, 20)
		b.PutTombstone(n%10, make([]byte, rng.IntN(16<<10)))
		commit(t, s, b)
		if all, _ := store.Journals(s); len(all) > most {
			most = len(all)
		}
		if rng.IntN(100) == 0 || n == 0 || n == rounds-1 {
			lost := copyStore(t, dir, losePages(rng, rng.IntN(2)*80))
			if got := roundOf(t, lost); got != n+1 {
				t.Fatalf("UNRESTORED: round %d was acknowledged, and round %d is there", n+1, got)
			}
		}
	}
	files := store.LogFile(s) - first
	t.Logf("%d log files, %d journals", files, most)
	if files < 3 || most > 6 || most >= files {
		t.Errorf("%d log files had %d journals", files, most)
	}
}

// TestJournalCutShort: a journal whose end was on its way to the disk leaves a prefix, more of it the more has arrived.
func TestJournalCutShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	dir := t.TempDir()
	s := journaled(t, dir)
	_, active := store.Journals(s)
	ends := []int64{store.JournalEnd(s)}
	for n := range uint64(12) {
		commit(t, s, round(n+1, 20))
		ends = append(ends, store.JournalEnd(s))
	}
	for range 25 {
		cut, garbage := rng.Int64N(ends[12]+100), rng.IntN(2) == 0
		want := uint64(0)
		for n, end := range ends {
			if end <= cut {
				want = uint64(n)
			}
		}
		lose := losePages(rng, 0)
		lost := copyStore(t, dir, func(path string, data []byte) []byte {
			switch {
			case path != active:
				return lose(path, data)
			case garbage:
				for i := cut; i < int64(len(data)); i++ {
					data[i] = byte(rng.Uint32()) | 1
				}
				return data
			}
			return data[:cut]
		})
		if got := roundOf(t, lost); got != want {
			t.Fatalf("cut at %d of %v, garbage behind it: %t: round %d is there, want %d", cut, ends, garbage, got, want)
		}
	}
}

// TestForeignJournals: what an older journal has left in the same file behind a newer one is not taken for a part of it, and a
// journal is for the log file that it was made for only, not for another of the same number; then it is gone.
func TestForeignJournals(t *testing.T) {
	const size = 600
	rng := rand.New(rand.NewPCG(7, 0))
	logFile := func(fill byte) []byte {
		data := bytes.Repeat([]byte{fill}, size)
		for i := range 20 {
			data[i] = byte(rng.Uint32())
		}
		return data
	}
	for name, c := range map[string]struct {
		log                 int
		before, after, left []int64 // steps of two journals in one file, and of one beside it that is for another log file
		want                int     // bytes restored
	}{
		"behind the end":     {log: 3, before: []int64{100, 100, 100}, after: []int64{100}, want: 100},
		"nothing yet":        {log: 3, before: []int64{100, 100, 100}, want: 0},
		"longer than before": {log: 3, before: []int64{100}, after: []int64{50, 100, 150}, want: 300},
		"another log file's": {log: 3, left: []int64{500}, after: []int64{70}, want: 70},
		"no such log file":   {log: 4, after: []int64{70}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			old, mine := logFile(1), logFile(2)
			journal := func(name string) func(log int, data []byte, steps []int64) {
				f, err := os.Create(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = f.Close() })
				j := store.NewJournal(f)
				return func(log int, data []byte, steps []int64) {
					t.Helper()
					if err := j.Write(log, bytes.NewReader(data), steps...); err != nil {
						t.Fatal(err)
					}
				}
			}
			write := journal("0.journal")
			write(3, mine, c.before) // of the same log file even: only the nonce tells
			write(c.log, mine, c.after)
			journal("1.journal")(3, old, c.left)
			path := filepath.Join(dir, fmt.Sprintf("%05d.mem", 3))
			lost := bytes.Clone(mine)
			clear(lost[20:])
			if err := os.WriteFile(path, lost, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := store.RestoreJournals(dir); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if want := append(bytes.Clone(mine[:20+c.want]), make([]byte, size-20-c.want)...); !bytes.Equal(got, want) {
				t.Errorf("%d bytes were restored, want %d", bytes.IndexByte(got[20:], 0), c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*.journal")); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestLogFileNames: a store that has gone through more log files than have five digits finds them, and so does one whose path
// has what patterns are made of.
func TestLogFileNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd [a-z] *?")
	for n := range uint64(2) {
		s := journaled(t, dir)
		commit(t, s, round(n+1, 20))
		_, active := store.Journals(s)
		lost := copyStore(t, dir, losePages(rand.New(rand.NewPCG(8, n)), 0))
		if got := roundOf(t, lost); got != n+1 {
			t.Errorf("round %d is there, want %d", got, n+1)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(active); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"00007.mem", "99999.mem", "100000.mem", "1.sst"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.LogFiles(dir)
	if slices.Sort(got); err != nil || !slices.Equal(got, []int{7, 99999, 100000}) {
		t.Errorf("%v, %v", got, err)
	}
}
