package store_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// compactors counts Badger's in this process.
func compactors() int {
	buf := make([]byte, 1<<20)
	n := 0
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "created by github.com/dgraph-io/badger/v4.(*levelsController).startCompact ") {
			n++
		}
	}
	return n
}

// awaitCompactors waits until there are want of them: the goroutine of one that is stopped may have said so and not have ended yet.
func awaitCompactors(t *testing.T, want int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(10 * time.Second); compactors() != want; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%d compactors, want %d", compactors(), want)
		}
	}
}

func put(t testing.TB, s *store.Store, i int, value []byte) {
	t.Helper()
	b := &store.Batch{}
	b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell(fmt.Sprint("r", i), "c"), TS: 1, Value: value})
	commit(t, s, b)
}

// TestRest: Badger's compactors are stopped once little has been written for some seconds, and run again when much has been, in
// each of the databases by itself; Close ends a store that rests.
func TestRest(t *testing.T) {
	for _, separate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, "", func(o *store.Options) { o.SeparateLog, o.MemTableSize = separate, 2<<20 })
			much, all := make([]byte, 2<<20/16), 2 // of one database
			if separate {
				all = 4
			}
			if n := compactors(); n != all {
				t.Fatalf("%d compactors after Open, want %d", n, all)
			}
			for i := range 3 {
				for range 30 { // as a cluster does that is idle
					put(t, s, i, []byte("v"))
					<-time.After(2 * time.Second)
				}
				synctest.Wait()
				if n := compactors(); n != 0 {
					t.Fatalf("round %d: %d compactors of a store that hardly anybody writes to", i, n)
				}
				put(t, s, i, much)
				synctest.Wait()
				if n := compactors(); n != 2 || store.Resting(s) {
					t.Fatalf("round %d: %d compactors after a write, want 2", i, n)
				}
			}
			for i := range 60 { // writes that are never far apart
				<-time.After(time.Second)
				put(t, s, i, much)
				if store.Resting(s) {
					t.Fatal("rests while it is written to")
				}
			}
			<-time.After(time.Minute)
			synctest.Wait()
			if !store.Resting(s) {
				t.Fatal("does not rest")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := compactors(); n != 0 {
				t.Errorf("%d compactors after Close", n)
			}
		})
	}
}

// TestRestCompacts: what a store does that rests: a compaction by hand wakes it, one set of compactors runs after it, and no
// rest begins while there is something to compact.
func TestRestCompacts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, func(o *store.Options) { o.MemTableSize, o.NoSync, o.ReclaimInterval = 2<<20, true, -1 })
	value := make([]byte, 1<<20)
	const n = 32
	for i := range n { // many memtables: level 0 is full again and again
		put(t, s, i, value)
	}
	rest(t, s)
	awaitCompactors(t, 0)
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	awaitCompactors(t, 2)
	rest(t, s)
	for i := range n { // writes do not wait for more than the start of the compactors
		put(t, s, i, value)
	}
	rest(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	snap := s.Snap()
	defer snap.Close()
	for i := range n {
		if v, ok, err := snap.Data(cell(fmt.Sprint("r", i), "c"), 1); err != nil || !ok || len(v) != len(value) {
			t.Errorf("value %d is lost: %t, %v", i, ok, err)
		}
	}
}

// rest looks until the store rests with nothing to compact: what a memtable brings that was still to be flushed wakes it. The
// worker looks as well.
func rest(t *testing.T, s *store.Store) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !store.Look(s) || store.Due(s) {
		<-tick.C
	}
}

// TestRestRaces: writes, rests, compactions and the end of the store, at once; nothing is lost.
func TestRestRaces(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, func(o *store.Options) { o.MemTableSize, o.NoSync, o.ReclaimInterval = 2<<20, true, -1 })
	const n = 300
	value := make([]byte, 64<<10)
	done := make(chan struct{})
	var others, writer sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				for range store.Looks {
					store.Look(s)
				}
			}
		}
	})
	ended := make(chan struct{})
	others.Go(func() {
		defer close(ended)
		for {
			s.Reclaim()
			if err := s.Compact(); err != nil {
				if !errors.Is(err, store.ErrClosed) {
					t.Error(err)
				}
				return
			}
		}
	})
	writer.Go(func() {
		for i := range n {
			b := &store.Batch{}
			b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupData, Cell: cell(fmt.Sprint("r", i), "c"), TS: 1, Value: value})
			if err := s.StateWriter().Commit([]*store.Batch{b}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	writer.Wait()
	close(done)
	if err := s.Close(); err != nil { // while a compaction is asked for again and again
		t.Fatal(err)
	}
	others.Wait()
	<-ended
	awaitCompactors(t, 0)
	s = open(t, dir)
	snap := s.Snap()
	defer snap.Close()
	for i := range n {
		if _, ok, err := snap.Data(cell(fmt.Sprint("r", i), "c"), 1); err != nil || !ok {
			t.Fatalf("value %d is lost: %t, %v", i, ok, err)
		}
	}
}
