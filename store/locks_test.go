package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/disk"
)

func lockKey(row string) []byte { return store.AppendKey(nil, mvcc.GroupLock, cell(row, "c"), 0) }

// putLock and deleteLock add the effects of a prewrite and of a commit.
func putLock(b *store.Batch, row, value string) { b.Put(lockKey(row), []byte(value)) }
func deleteLock(b *store.Batch, row string)     { b.Delete(lockKey(row)) }

// changed commits a batch filled by change and returns it.
func changed(t testing.TB, s *store.Store, change func(b *store.Batch)) *store.Batch {
	t.Helper()
	b := new(store.Batch)
	change(b)
	commit(t, s, b)
	return b
}

// locked adds an entry to a tablet's log and commits it with the effects added by change.
func locked(t testing.TB, s *store.Store, tablet, index uint64, change func(b *store.Batch)) {
	t.Helper()
	appendTo(t, s, tablet, run(store.InitialTerm, index, index), hard(store.InitialTerm, index))
	applied(t, s, tablet, index, change)
}

// applied commits the effects of an entry, possibly again.
func applied(t testing.TB, s *store.Store, tablet, index uint64, change func(b *store.Batch)) {
	t.Helper()
	b := effectsOf(tablet, index, nil)
	change(b)
	commit(t, s, b)
}

// locksIn returns the locks of the store by key.
func locksIn(t testing.TB, s *store.Store) map[string]string {
	t.Helper()
	snap := s.SnapWithLocks()
	defer snap.Close()
	out := map[string]string{}
	err := snap.Cursor(store.Rows{}).Each(func(key, value []byte) bool {
		if key[0] == byte(mvcc.GroupLock) {
			out[string(key)] = string(value)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantLocks(t testing.TB, s *store.Store, what string, want ...string) {
	t.Helper()
	all := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		all[string(lockKey(want[i]))] = want[i+1]
	}
	if got := locksIn(t, s); !maps.Equal(got, all) {
		t.Errorf("%s: the locks are %q, want %q", what, got, all)
	}
}

// badgerLocks returns the number of versions of locks in Badger.
func badgerLocks(s *store.Store) int { return s.RawKeys()[byte(mvcc.GroupLock)] }

// A lock that is deleted soon never reaches Badger; another one does when locks are read, and then
// so does its deletion.
func TestShortLocksAreNotWritten(t *testing.T) {
	s := open(t, "")
	one := func(change func(b *store.Batch)) { changed(t, s, change) }
	for i := range 100 {
		row := fmt.Sprint("short", i)
		one(func(b *store.Batch) { putLock(b, row, "1") })
		if i%2 == 0 { // put again, as by a heartbeat
			one(func(b *store.Batch) { putLock(b, row, "2") })
		}
		one(func(b *store.Batch) { deleteLock(b, row) })
	}
	if n := badgerLocks(s); n != 0 {
		t.Errorf("Badger has %d versions of locks that were deleted", n)
	}
	one(func(b *store.Batch) { putLock(b, "long", "1") })
	snap := s.Snap()
	defer snap.Close()
	if n := badgerLocks(s); n != 0 {
		t.Errorf("Badger has %d versions of a lock that nobody reads", n)
	}
	wantLocks(t, s, "of one lock", "long", "1")
	one(func(b *store.Batch) { putLock(b, "long", "2") })
	wantLocks(t, s, "replaced", "long", "2")
	before := badgerLocks(s)
	one(func(b *store.Batch) { deleteLock(b, "long") })
	if n := badgerLocks(s); n != before+1 {
		t.Errorf("Badger has %d versions of locks, before the deletion %d", n, before)
	}
	wantLocks(t, s, "RESURRECTED: after the deletion")
	one(func(b *store.Batch) { putLock(b, "long", "3") })
	one(func(b *store.Batch) { deleteLock(b, "long") })
	if n := badgerLocks(s); n != before+1 {
		t.Errorf("Badger has %d versions of locks after another lock, before it %d", n, before+1)
	}
}

// Locks that are not deleted are written when they become too many, or too large.
func TestManyLocksAreWritten(t *testing.T) {
	for name, of := range map[string]struct{ locks, size int }{
		"many": {1<<15 + 1000, 10}, "large": {100, 50 << 10}, "chunked": {1, 600 << 10},
	} {
		s := open(t, "")
		value := string(bytes.Repeat([]byte("v"), of.size))
		var want []string
		for i := 0; i < of.locks; i += 50 {
			b := new(store.Batch)
			for j := i; j < min(i+50, of.locks); j++ {
				putLock(b, fmt.Sprint(j), value)
				want = append(want, fmt.Sprint(j), value)
			}
			commit(t, s, b)
		}
		if n := badgerLocks(s); n == 0 {
			t.Errorf("%s: none are written", name)
		}
		wantLocks(t, s, name, want...)
	}
}

// A Snap that may lack locks does not report that there are none.
func TestSnapLacksLocks(t *testing.T) {
	s := open(t, "")
	changed(t, s, func(b *store.Batch) { putLock(b, "row", "1") })
	snap := s.Snap()
	defer snap.Close()
	refused := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: a Snap without locks answers", what)
		}
	}
	_, err := snap.Locked(cell("row", "c"))
	refused("a lock", err)
	refused("all locks", last(snap.DiskLocks(mvcc.Span{Table: 16})))
	refused("all rows", snap.Cursor(store.Rows{}).Each(func(_, _ []byte) bool { return true }))
	_, err = snap.Row(16, "row", 10, nil)
	refused("a row", err)
}

// A Snap with locks shows those of all returned Commits, and keeps them.
func TestSnapKeepsItsLocks(t *testing.T) {
	s := open(t, "")
	changed(t, s, func(b *store.Batch) { putLock(b, "row", "1") })
	snap := s.SnapWithLocks()
	defer snap.Close()
	changed(t, s, func(b *store.Batch) {
		deleteLock(b, "row")
		putLock(b, "other", "1")
	})
	wantLocks(t, s, "later", "other", "1")
	for row, want := range map[string]bool{"row": true, "other": false} {
		if got, err := snap.Locked(cell(row, "c")); got != want || err != nil {
			t.Errorf("%s is locked: %t, %v", row, got, err)
		}
	}
}

// A store that cannot write its locks returns the error to readers of locks, and to the next
// Commit.
func TestLocksCannotBeWritten(t *testing.T) {
	broken := errors.New("test: broken")
	var fail error
	s := open(t, "", func(o *store.Options) { store.BeforeTxn(o, func() error { return fail }) })
	b := changed(t, s, func(b *store.Batch) { putLock(b, "row", "1") })
	fail = broken
	snap := s.SnapWithLocks()
	defer snap.Close()
	if _, err := snap.Locked(cell("row", "c")); !errors.Is(err, broken) {
		t.Errorf("reading a lock: %v", err)
	}
	if _, _, err := snap.Newest(cell("row", "c")); err != nil {
		t.Errorf("reading something else: %v", err)
	}
	fail = nil
	if err := s.StateWriter().Commit([]*store.Batch{b}); !errors.Is(err, store.ErrFailed) {
		t.Errorf("the next Commit: %v", err)
	}
	if err := s.Checkpoint(); !errors.Is(err, store.ErrFailed) {
		t.Errorf("a checkpoint: %v", err)
	}
}

// On a full disk nothing new is committed, but existing locks are written: a checkpoint frees
// space.
func TestLocksOnAFullDisk(t *testing.T) {
	free := uint64(1 << 30)
	s := open(t, "", func(o *store.Options) {
		o.MinFreeBytes, o.FreeBytes = 1<<20, func() (uint64, error) { return free, nil }
	})
	beginAt(t, s, 3, 10)
	b := changed(t, s, func(b *store.Batch) { putLock(b, "row", "1") })
	free = 0
	_ = s.Room(1) // which measures
	if err := s.StateWriter().Commit([]*store.Batch{b}); !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("a Commit on a full disk: %v", err)
	}
	if err := s.Checkpoint(); err != nil {
		t.Errorf("a checkpoint: %v", err)
	}
	if n := badgerLocks(s); n != 1 {
		t.Errorf("Badger has %d locks after the checkpoint", n)
	}
	wantLocks(t, s, "on a full disk", "row", "1")
}

// TestLocksAreNeverTorn: a Snap shows a batch's locks with the rest of it, during concurrent
// checkpoints.
func TestLocksAreNeverTorn(t *testing.T) {
	s := open(t, "")
	rawKey := store.AppendKey(nil, mvcc.GroupRaw, cell("row", "c"), 0)
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; !stop.Load(); i++ {
			b := new(store.Batch)
			if i%3 == 0 {
				b.Delete(rawKey)
				deleteLock(b, "row")
			} else {
				b.Put(rawKey, fmt.Append(nil, i))
				putLock(b, "row", fmt.Sprint(i))
			}
			if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	done.Go(func() {
		for !stop.Load() {
			if err := s.Checkpoint(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2000 {
		snap := s.SnapWithLocks()
		raw, _, err := snap.Get(rawKey)
		lock, _, lockErr := snap.Get(lockKey("row"))
		if snap.Close(); err != nil || lockErr != nil || !bytes.Equal(raw, lock) {
			t.Errorf("torn: %q is locked by %q: %v, %v", raw, lock, err, lockErr)
			break
		}
	}
	stop.Store(true)
	done.Wait()
}

// syncing opens a store that reports its state at the last sync: what a power loss may leave of it.
func syncing(t *testing.T, dir string) (s *store.Store, synced *map[string][]byte) {
	t.Helper()
	synced = new(map[string][]byte)
	s = open(t, dir, func(o *store.Options) {
		store.BeforeSync(o, func() (err error) {
			*synced, err = disk.Files(filepath.Join(dir, "db"))
			return err
		})
	})
	return s, synced
}

// lose simulates a power loss that leaves these files of the state.
func lose(t *testing.T, dir string, left map[string][]byte) *store.Store {
	t.Helper()
	lost := killed(t, dir)
	if err := disk.Replace(filepath.Join(lost, "db"), left); err != nil {
		t.Fatal(err)
	}
	return open(t, lost)
}

// A lock put before a checkpoint, and not deleted, survives a power loss that leaves nothing else:
// no later entry puts it again. Catches BROKEN=locks_unflushed.
func TestLockOutlivesCheckpoint(t *testing.T) {
	for name, covers := range map[string]func(s *store.Store) error{
		"checkpoint": (*store.Store).Checkpoint,
		"barrier": func(s *store.Store) error {
			beginAt(t, s, 4, 10)
			return nil
		},
		"close": (*store.Store).Close,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, synced := syncing(t, dir)
			beginAt(t, s, 3, 10)
			locked(t, s, 3, 11, func(b *store.Batch) {
				putLock(b, "stands", "1")
				putLock(b, "goes", "1")
			})
			locked(t, s, 3, 12, func(b *store.Batch) { deleteLock(b, "goes") })
			if err := covers(s); err != nil {
				t.Fatal(err)
			}
			s = lose(t, dir, *synced)
			wantFigures(t, s, 3, 12, name)
			wantLocks(t, s, "LOST-LOCK: after "+name, "stands", "1")
		})
	}
}

// A checkpoint concurrent with commits covers none whose locks it has not made durable. Catches
// BROKEN=locks_flushed_early.
func TestCheckpointCoversItsLocks(t *testing.T) {
	s := open(t, "", memTable(1<<20), func(o *store.Options) { o.Crashes = true })
	beginAt(t, s, 3, 10)
	const end = 300
	appendTo(t, s, 3, run(store.InitialTerm, 11, end), hard(store.InitialTerm, end))
	var done sync.WaitGroup
	var failed atomic.Bool
	defer done.Wait()
	done.Go(func() {
		pace := time.NewTicker(50 * time.Microsecond)
		defer pace.Stop()
		for i := uint64(11); i <= end && !failed.Load(); i++ {
			<-pace.C
			b := effectsOf(3, i, nil)
			putLock(b, fmt.Sprint(i), "1")
			if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for covered := uint64(10); covered < end; {
		if err := s.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		n, err := s.Reopen(rand.New(rand.NewPCG(covered, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if covered, err = openLog(t, n, 3).Checkpoint(); err != nil {
			t.Fatal(err)
		}
		have := locksIn(t, n)
		for i := uint64(11); i <= covered; i++ {
			if have[string(lockKey(fmt.Sprint(i)))] == "" {
				failed.Store(true)
				t.Fatalf("LOST-LOCK: the checkpoint is at %d, and the lock of %d is gone", covered, i)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A lock that a checkpoint has made durable and that was deleted afterwards is gone when its tablet
// has applied the deletion again. Catches BROKEN=lock_resurrected.
func TestDeletedLockStaysDeleted(t *testing.T) {
	dir := t.TempDir()
	s, synced := syncing(t, dir)
	beginAt(t, s, 3, 10)
	locked(t, s, 3, 11, func(b *store.Batch) { putLock(b, "row", "1") })
	if err := s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	delete12 := func(b *store.Batch) { deleteLock(b, "row") }
	locked(t, s, 3, 12, delete12)
	wantLocks(t, s, "RESURRECTED: before the crash")
	s = lose(t, dir, *synced)
	wantLocks(t, s, "after the power loss", "row", "1")
	applied(t, s, 3, 12, delete12)
	wantLocks(t, s, "RESURRECTED: after the crash")
}

// A lock that is in Badger, and whose put and deletion are both behind the checkpoint, is gone once
// both are applied again: the deletion also removes the copy in Badger. Catches
// BROKEN=locks_unknown.
func TestPutAgainAndDeleted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	beginAt(t, s, 3, 10)
	put11 := func(b *store.Batch) { putLock(b, "row", "1") }
	delete12 := func(b *store.Batch) { deleteLock(b, "row") }
	locked(t, s, 3, 11, put11)
	wantLocks(t, s, "written for a reader", "row", "1")
	left, err := disk.Files(filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	locked(t, s, 3, 12, delete12)
	s = lose(t, dir, left)
	wantFigures(t, s, 3, 10, "after the power loss")
	applied(t, s, 3, 11, put11)
	applied(t, s, 3, 12, delete12)
	wantLocks(t, s, "FORGOTTEN: a lock of Badger's, deleted again")
}

// A lock too long to be cached is known to be in Badger, like any other written one.
func TestLongLockIsDeleted(t *testing.T) {
	s := open(t, "")
	changed(t, s, func(b *store.Batch) { putLock(b, "row", strings.Repeat("v", 1<<20)) })
	changed(t, s, func(b *store.Batch) { putLock(b, "row", "1") })
	changed(t, s, func(b *store.Batch) { deleteLock(b, "row") })
	wantLocks(t, s, "FORGOTTEN: a long lock, put again and deleted")
}

// TestLocksAgainstModel: whatever a crash leaves of locks, and whenever they were read or made
// durable, they are correct after the entries behind the checkpoint are applied again.
func TestLocksAgainstModel(t *testing.T) {
	for seed := range uint64(40) {
		dice := rand.New(rand.NewPCG(seed, 7))
		s := open(t, "", memTable(1<<20), func(o *store.Options) { o.Crashes = true })
		beginAt(t, s, 3, 10)
		index, changes := uint64(10), map[uint64]func(*store.Batch){}
		model := map[string]string{}
		for range 150 {
			switch dice.IntN(12) {
			case 0:
				if err := s.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if got := locksIn(t, s); !maps.Equal(got, model) {
					t.Fatalf("seed %d, entry %d: %q, want %q", seed, index, got, model)
				}
			case 2:
				var loss *rand.Rand
				if dice.IntN(3) > 0 {
					loss = dice
				}
				s = reopen(t, s, loss)
				from, err := openLog(t, s, 3).Checkpoint()
				if err != nil {
					t.Fatal(err)
				}
				for i := from + 1; i <= index; i++ {
					applied(t, s, 3, i, changes[i])
				}
			default:
				index++
				row, put := fmt.Sprint(dice.IntN(6)), dice.IntN(2) == 0
				value := fmt.Sprint(index)
				delete(model, string(lockKey(row)))
				changes[index] = func(b *store.Batch) { deleteLock(b, row) }
				if put {
					model[string(lockKey(row))] = value
					changes[index] = func(b *store.Batch) { putLock(b, row, value) }
				}
				locked(t, s, 3, index, changes[index])
			}
		}
		if got := locksIn(t, s); !maps.Equal(got, model) {
			t.Fatalf("seed %d: %q, want %q", seed, got, model)
		}
	}
}
