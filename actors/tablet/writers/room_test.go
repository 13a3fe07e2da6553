package writers

import (
	"errors"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"
)

// TestGiveUpWaitingForRoom: a node that stops does not wait for space, and writes that depend on an
// abandoned write are not written either. Catches BROKEN=full_disk_ack.
func TestGiveUpWaitingForRoom(t *testing.T) {
	free := &atomic.Uint64{}
	free.Store(math.MaxUint64)
	s := newSlowLogOn(t, store.Options{InMemory: true, FreeBytes: func() (uint64, error) {
		return free.Load(), nil
	}})
	free.Store(1 << 20)
	stream := &Stream{}
	send := func(name string) {
		b := &store.Batch{}
		b.Put([]byte("r"), []byte(name))
		s.sendNamed(name, &Write{Batch: b, Stream: stream})
	}
	_ = s.store.Room(0) // makes the store measure its free space
	send("first")
	send("second")
	s.GiveUp()
	for _, told := range s.wait(2) {
		if !strings.Contains(told, "store: free disk space is below the watermark") {
			t.Errorf("FULL-DISK-ACK: %q reported as written without space", told)
		}
	}
	free.Store(math.MaxUint64)
	send("third")
	if told := s.wait(3)[2]; !strings.Contains(told, "store: free disk space is below the watermark") {
		t.Errorf("notified %q, want ErrDiskFull", told)
	}
}

// TestGiveUpKeepsOrder: a write that a writer has taken but not tried when the node stops waiting
// is not written either if it depends on an abandoned one, although there is space for it.
func TestGiveUpKeepsOrder(t *testing.T) {
	const room = 1 << 20 // above the reserve: enough for the second batch, too little for the first
	free := func() (uint64, error) { return store.DefaultMinFreeBytes/4 + room, nil }
	s := newSlowLogOn(t, store.Options{InMemory: true, FreeBytes: free})
	_ = s.store.Room(0) // makes the store measure its free space
	stream := &Stream{}
	send := func(name string, size int) {
		b := &store.Batch{}
		b.Put([]byte("r"), make([]byte, size))
		s.sendNamed(name, &Write{Batch: b, Stream: stream})
	}
	send("first", 4*room)
	for !s.Full() {
		runtime.Gosched()
	}
	// The actor is busy until both messages are in its mailbox, ahead of the batch's end.
	busy, goOn := make(chan struct{}), make(chan struct{})
	refused := &Stream{}
	refused.refuse(errors.New("test"))
	s.Send(&Write{Batch: &store.Batch{}, Stream: refused, Done: func(error) {
		close(busy)
		<-goOn
	}})
	<-busy
	send("second", 1)
	s.GiveUp()
	close(goOn)
	for _, told := range s.wait(2) {
		if !strings.Contains(told, "store: free disk space is below the watermark") {
			t.Errorf("notified %q, want ErrDiskFull", told)
		}
	}
}

// TestRoomForTheFirst: of writes that do not all fit on the disk, those that fit are written in
// order: with a little space the node continues.
func TestRoomForTheFirst(t *testing.T) {
	system := actorkit.NewSystem(slog.New(slog.DiscardHandler))
	defer system.Shutdown()
	var written []int
	var largest int
	commit := func(writes []*Write) error {
		if largest = max(largest, len(writes)); len(writes) > 2 {
			return store.ErrDiskFull
		}
		for _, w := range writes {
			written = append(written, w.Batch.Size())
		}
		return nil
	}
	w := spawn(system, commit, commit, actorkit.BatchConfig{}, slog.New(slog.DiscardHandler))
	release := hold(w)
	const n = 9
	told := make(chan error, n)
	for i := range n {
		b := &store.Batch{}
		b.Put(make([]byte, i+1), nil)
		w.Send(&Write{Batch: b, Done: func(err error) { told <- err }})
	}
	release()
	for range n {
		if err := <-told; err != nil {
			t.Error(err)
		}
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if largest <= 2 || len(written) != n+1 || !slices.IsSorted(written) {
		t.Errorf("written %v, at most %d at once", written, largest)
	}
}
