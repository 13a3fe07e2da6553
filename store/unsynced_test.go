package store_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// commitBeside commits the batch as the log actor does: the sync goes on beside what is applied.
func commitBeside(w *store.Writer, b *store.Batch, apply func() error) error {
	if err := w.CommitUnsynced([]*store.Batch{b}); err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() { synced <- w.Sync() }()
	return errors.Join(apply(), <-synced)
}

// Syncs on another goroutine meet every log file that a busy writer goes through, and nothing is lost of what any of them was
// for.
func TestSyncBesideCommits(t *testing.T) {
	const rounds = 3000
	dir := t.TempDir()
	s := open(t, dir, func(o *store.Options) { o.MemTableSize = 2 << 20 })
	w, unsynced, done := s.LogWriter(), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for range unsynced {
			if err := w.Sync(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	first := store.LogFile(s)
	for n := range uint64(rounds) {
		b := round(n+1, 20)
		b.PutTombstone(n%10, make([]byte, 4<<10))
		if n%2 == 0 {
			b.SetLazy()
		}
		if err := w.CommitUnsynced([]*store.Batch{b}); err != nil {
			t.Fatal(err)
		}
		select {
		case unsynced <- struct{}{}:
		default:
		}
	}
	close(unsynced)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if files := store.LogFile(s) - first; files < 2 {
		t.Fatalf("only %d log files were left", files)
	}
	snap := s.Snap()
	n, err := readRound(snap, 20)
	snap.Close()
	if n != rounds || err != nil {
		t.Fatalf("round %d is visible: %v", n, err)
	}
}

// A failed sync is the last: that of a file which the kernel has given up the pages of would succeed the next time, and nothing
// would be on the disk.
func TestFailedSyncIsTheLast(t *testing.T) {
	s := open(t, t.TempDir())
	w := s.LogWriter()
	if err := w.CommitUnsynced([]*store.Batch{round(1, 3)}); err != nil {
		t.Fatal(err)
	}
	mend, err := store.BreakSyncUntil(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); !errors.Is(err, store.ErrFailed) {
		t.Fatalf("%v, want ErrFailed", err)
	}
	mend()
	if err := w.Sync(); !errors.Is(err, store.ErrFailed) {
		t.Fatalf("%v, want ErrFailed also when the file can be synced again", err)
	}
	if err := w.CommitUnsynced([]*store.Batch{round(2, 3)}); !errors.Is(err, store.ErrFailed) {
		t.Fatalf("%v, want ErrFailed", err)
	}
}

// A new journal has its place on the disk before it is written, as far as the next syncs may need it, and no further.
func TestJournalIsPlacedAhead(t *testing.T) {
	s := open(t, t.TempDir())
	_, name := store.Journals(s)
	for n := range uint64(40) {
		b := round(n+1, 3)
		b.PutTombstone(n, make([]byte, 32<<10))
		commit(t, s, b)
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		got, written := info.Sys().(*syscall.Stat_t).Blocks*512, int64(n+1)*(32<<10)
		if got < written || got > written+2*store.AheadBytes {
			t.Fatalf("%d bytes are written, and %d have their place", written, got)
		}
	}
}

// BenchmarkSync is one commit of 8 kB after the other, each synced, in a journal that has its place on the disk and in one that has not.
func BenchmarkSync(b *testing.B) {
	for _, ahead := range []bool{false, true} {
		b.Run(fmt.Sprintf("ahead=%v", ahead), func(b *testing.B) {
			s := open(b, b.TempDir())
			payload := make([]byte, 8000)
			for n := range uint64(b.N) {
				if !ahead {
					store.NoAhead(s)
				}
				batch := &store.Batch{}
				batch.PutTombstone(n%100, payload)
				commit(b, s, batch)
			}
		})
	}
}
