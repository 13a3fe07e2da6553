package node_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/workload"
)

// TestUnreadableStore: a node whose Badger could not create a memtable, here because its directory
// is missing, stops serving requests that need it, reads too, and reports why. The process
// continues.
func TestUnreadableStore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Listen, cfg.HTTP, cfg.Store.MemTableSize = t.TempDir(), true,
		"127.0.0.1:0", "", 2<<20
	n, err := node.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := workload.Prepare(ctx, n.DB(), 4); err != nil {
		t.Fatal(err)
	}
	column := percolator.Column{Table: workload.Table, Name: "c"}
	if err := set(ctx, n.DB(), "00", column, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(); err != nil {
		t.Fatal(err)
	}
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir, away := filepath.Join(cfg.Dir, "db"), filepath.Join(cfg.Dir, "away")
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	awaitTrue(ctx, t, "a memtable is needed", func() bool {
		writing, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = set(writing, n.DB(), "ff", column, bytes.Repeat([]byte("x"), 1<<20)) // fails in the end
		return errors.Is(n.Ready(), store.ErrFailed)
	})
	reading, cancelReading := context.WithTimeout(ctx, 2*time.Second)
	defer cancelReading()
	seen := 0
	for _, err = range s.Scan(reading, percolator.Rows(workload.Table), column) {
		seen++
	}
	if err == nil {
		t.Errorf("a store without a memtable gave %d cells", seen)
	}
	awaitTrue(ctx, t, "the node says why", func() bool {
		return errors.Is(n.Ready(), store.ErrFailed) &&
			strings.Contains(n.Status().Failed, store.ErrFailed.Error())
	})
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	t.Log(n.Close(ctx)) // it may fail
}

// TestDamagedStore: a single node that finds its store damaged stops serving and names the file; so
// does its next start.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Listen, cfg.HTTP = t.TempDir(), true, "127.0.0.1:0", ""
	start := func() (*node.Node, error) { return node.Open(ctx, cfg) }
	n, err := start()
	if err != nil {
		t.Fatal(err)
	}
	if err := workload.Prepare(ctx, n.DB(), 4); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil { // which writes a table
		t.Fatal(err)
	}
	if n, err = start(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(cfg.Dir, "db", "*.sst"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	flipBit(t, names[0])
	if err := n.VerifyStore(); !errors.Is(err, store.ErrDamaged) {
		t.Fatalf("BIT-ROT: %v, want ErrDamaged", err)
	}
	if err := n.Ready(); !errors.Is(err, store.ErrDamaged) ||
		!strings.Contains(err.Error(), names[0]) {
		t.Errorf("ready: %v, want %s damaged", err, names[0])
	}
	if s := n.Status(); !strings.Contains(s.Damaged, names[0]) ||
		!strings.Contains(s.Failed, names[0]) {
		t.Errorf("status: damaged %q, failed %q", s.Damaged, s.Failed)
	}
	column := percolator.Column{Table: workload.Table, Name: "c"}
	writing, cancelWriting := context.WithTimeout(ctx, 2*time.Second)
	defer cancelWriting()
	if err := set(writing, n.DB(), "00", column, []byte("1")); err == nil {
		t.Error("a damaged store was written to")
	}
	t.Log(n.Close(ctx)) // it may fail
	if n, err = start(); !errors.Is(err, store.ErrDamaged) ||
		!strings.Contains(err.Error(), names[0]) {
		t.Errorf("started again: %v, want %s damaged", err, names[0])
	}
	if err == nil {
		_ = n.Close(ctx)
	}
}

// flipBit changes a bit of the file in place: a mapped file must never shrink.
func flipBit(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const at = 100
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1
	if _, err := f.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
}
