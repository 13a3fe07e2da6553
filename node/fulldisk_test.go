package node_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/workload"
)

// fillableDisk is a store in memory whose disk is as full as a test says.
func fillableDisk(t *testing.T) (*store.Store, *atomic.Uint64) {
	t.Helper()
	free := &atomic.Uint64{}
	free.Store(math.MaxUint64)
	st, err := store.Open(store.Options{InMemory: true, FreeBytes: func() (uint64, error) { return free.Load(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return st, free
}

// TestNodeOnFullDisk: a node whose disk has no byte left refuses writes and goes on reading, for
// longer than the oracle's mark lasts; with room again it writes, without a restart, and what was
// refused has left nothing.
func TestNodeOnFullDisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	st, free := fillableDisk(t)
	cfg := node.DefaultConfig()
	cfg.Store.InMemory, cfg.Insecure, cfg.Listen, cfg.HTTP = true, true, "", ""
	began, passed := time.Now(), atomic.Int64{} // beside what passes by itself
	n, err := node.OpenWith(ctx, cfg, node.Parts{Store: st, Clock: func() time.Time {
		return began.Add(time.Since(began) + time.Duration(passed.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(n.Close(ctx), st.Close()); err != nil {
			t.Error(err)
		}
	}()
	if err := workload.Prepare(ctx, n.DB(), 1); err != nil {
		t.Fatal(err)
	}
	column := percolator.Column{Table: workload.Table, Name: "c"}
	if err := set(ctx, n.DB(), "r", column, []byte("1")); err != nil {
		t.Fatal(err)
	}
	free.Store(1 << 20)
	if err := st.Room(1); !errors.Is(err, store.ErrDiskFull) {
		t.Fatal(err)
	}
	last := percolator.Timestamp(0)
	for range 20 {
		passed.Add(int64(time.Second)) // the mark is 3 s ahead
		s, err := n.DB().Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Timestamp() <= last {
			t.Fatalf("timestamp %v after %v", s.Timestamp(), last)
		}
		last = s.Timestamp()
		if v, ok, err := s.Get(ctx, "r", column); err != nil || !ok || string(v) != "1" {
			t.Fatalf("read %q, %v, %v", v, ok, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := set(ctx, n.DB(), "r", column, []byte("2")); !errors.Is(err, percolator.ErrDiskFull) {
			t.Fatalf("a write: %v", err)
		}
	}
	free.Store(math.MaxUint64)
	if err := st.Room(1); err != nil {
		t.Fatal(err)
	}
	if err := set(ctx, n.DB(), "r", column, []byte("3")); err != nil {
		t.Error(err)
	}
}
