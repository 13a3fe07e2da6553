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

// TestUnreadableStore: a node whose Badger could not make a memtable, here because its directory is
// away, stops serving what meets the fault, reads too, and says why. The process goes on.
func TestUnreadableStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Listen, cfg.HTTP, cfg.Store.MemTableSize = t.TempDir(), true, "127.0.0.1:0", "", 2<<20
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
	for range 20 { // until a memtable is full
		writing, cancel := context.WithTimeout(ctx, time.Second)
		err = set(writing, n.DB(), "ff", column, bytes.Repeat([]byte("x"), 1<<20))
		cancel()
		if err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("no memtable was needed")
	}
	reading, cancelReading := context.WithTimeout(ctx, 2*time.Second)
	defer cancelReading()
	seen := 0
	for _, err = range s.Scan(reading, percolator.Rows(workload.Table), column) {
		seen++
	}
	if err == nil {
		t.Errorf("a store without a memtable gave %d cells", seen)
	}
	comesTrue(ctx, t, "the node says why", func() bool {
		return errors.Is(n.Ready(), store.ErrFailed) && strings.Contains(n.Status().Failed, store.ErrFailed.Error())
	})
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	t.Log(n.Close(ctx)) // it may complain
}
