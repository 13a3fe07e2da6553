package store_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/percolator-go/percolator/store"
)

// Batches of one Commit share a Txn as far as they fit, are applied in order, and are never
// divided.
func TestCommitGroups(t *testing.T) {
	s := open(t, t.TempDir(), func(o *store.Options) { o.MemTableSize = 4 << 20 })
	before := s.Stats()
	var small []*store.Batch
	for i := range uint64(100) {
		small = append(small, round(i, 2))
	}
	commit(t, s, small...)
	got := s.Stats()
	if txns := got.Txns - before.Txns; txns != 1 {
		t.Errorf("100 small batches took %d transactions", txns)
	}
	if got.Batches-before.Batches != 100 || got.Log.Syncs.Count() != before.Log.Syncs.Count() ||
		got.Bytes == before.Bytes {
		t.Errorf("figures: %+v after %+v", got, before)
	}
	third := store.TxnBytes(s)/3 - 100
	var large []*store.Batch
	for i := range 5 {
		b := new(store.Batch)
		b.Put([]byte("k"), make([]byte, third))
		b.Put(fmt.Appendf(nil, "m%d", i), []byte("v"))
		large = append(large, b)
	}
	commit(t, s, large...)
	if txns := s.Stats().Txns - got.Txns; txns != 2 {
		t.Errorf("5 batches of a third took %d transactions, want 2", txns)
	}
	snap := s.Snap()
	defer snap.Close()
	if n, err := readRound(snap, 2); n != 99 || err != nil {
		t.Errorf("the last of the batches does not win: round %d, %v", n, err)
	}
}

// A batch at the limit is accepted, whatever its content; one above it is refused before anything
// is written.
func TestCommitLimits(t *testing.T) {
	for _, memory := range []bool{false, true} {
		dir := ""
		if !memory {
			dir = t.TempDir()
		}
		s := open(t, dir, func(o *store.Options) { o.MemTableSize = 4 << 20 })
		bytes, one := new(store.Batch), new(store.Batch)
		for bytes.Size()+1+8+12 < store.MaxBatchBytes {
			room := store.MaxBatchBytes - bytes.Size() - 8 - 12
			bytes.Put(fmt.Appendf(nil, "%08d", bytes.Len()), make([]byte, min(1000, room)))
		}
		for one.Len() < store.MaxBatchLen {
			one.Delete(fmt.Appendf(nil, "%08d", one.Len()))
		}
		commit(t, s, one, bytes)
		bytes.Put(make([]byte, 1000), nil)
		one.Delete([]byte("y"))
		for _, b := range []*store.Batch{bytes, one} {
			ok := round(5, 3)
			err := s.StateWriter().Commit([]*store.Batch{ok, b})
			if !errors.Is(err, store.ErrBatchTooLarge) {
				t.Errorf("memory=%v: %v, want ErrBatchTooLarge", memory, err)
			}
		}
		snap := s.Snap()
		if n, err := readRound(snap, 3); n != 0 || err != nil {
			t.Errorf("memory=%v: a refused commit left round %d, %v", memory, n, err)
		}
		snap.Close()
		// a refusal is not a failure; an empty batch has no effect
		commit(t, s, round(6, 3), new(store.Batch))
	}
}

// After a failed write nothing is acknowledged, then or later, and nothing of it becomes visible.
func TestCommitFails(t *testing.T) {
	broken := false
	s := open(t, t.TempDir(), func(o *store.Options) {
		store.BeforeTxn(o, func() error {
			if broken {
				return errCut
			}
			return nil
		})
	})
	commit(t, s, round(1, 3))
	for range 2 {
		broken = !broken
		err := s.StateWriter().Commit([]*store.Batch{round(2, 3)})
		if !errors.Is(err, store.ErrFailed) {
			t.Fatalf("%v, want ErrFailed", err)
		}
	}
	snap := s.Snap()
	defer snap.Close()
	if n, err := readRound(snap, 3); n != 1 || err != nil {
		t.Errorf("round %d, %v", n, err)
	}
}

// With less free than the watermark the store reports ErrDiskFull, and with less than the reserve
// commits are refused, which does not fail the store.
func TestWatermark(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	free, err := s.FreeBytes()
	if err != nil || free == 0 || free == math.MaxUint64 {
		t.Fatalf("free: %d, %v", free, err)
	}
	if err := s.WriteBlocked(); err != nil {
		t.Errorf("blocked with %d bytes free: %v", free, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, func(o *store.Options) { o.MinFreeBytes = free * 2 })
	if err := s.WriteBlocked(); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("half of the watermark is free: %v, want ErrDiskFull", err)
	}
	commit(t, s, round(1, 3)) // commits may use the space between the watermark and the reserve
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, func(o *store.Options) { o.MinFreeBytes = free * 8 })
	err = s.StateWriter().Commit([]*store.Batch{round(2, 3)})
	if !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("half of the reserve is free: %v, want ErrDiskFull", err)
	}
	if err := s.StateWriter().Commit([]*store.Batch{round(2, 3)}); errors.Is(err, store.ErrFailed) {
		t.Errorf("a full disk is not a failure: %v", err)
	}
}

// Stats and Reclaim may run concurrently with writes.
func TestStats(t *testing.T) {
	s := open(t, t.TempDir())
	commit(t, s, round(1, 100))
	snap := s.Snap()
	s.Reclaim()
	st := s.Stats()
	if st.Snaps != 1 || st.DiskBytes == 0 || st.Txns != 1 {
		t.Errorf("the figures are %+v, want 1 snap, bytes on the disk, 1 transaction", st)
	}
	snap.Close()
	snap.Close()
	if n := s.Stats().Snaps; n != 0 {
		t.Errorf("%d snaps are open", n)
	}
}
