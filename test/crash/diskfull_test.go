package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/disk"
	"github.com/percolator-go/percolator/test/workload"
)

// childFull makes the child write on a small disk, ignoring the writes' errors.
const childFull = "PERCOLATOR_CRASH_FULL"

// smallDisk is the size of the disk for full-disk tests, and watermark the free space below which
// its node refuses writes, in bytes.
const (
	smallDisk = 256 << 20
	watermark = 64 << 20
)

// openSmall opens a node configured for a small disk.
func openSmall(ctx context.Context, dir string, minFree uint64) (*node.Node, error) {
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure = dir, "127.0.0.1:0", "", true
	cfg.Store.MemTableSize, cfg.Store.MinFreeBytes, cfg.History = 4<<20, minFree, time.Second
	return node.Open(ctx, cfg)
}

// ballast is another program's file on the same disk.
func ballast(path string, size uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(size)), f.Close())
}

// takeAll fills the disk.
func takeAll(dir string) error {
	for i, size := 0, uint64(smallDisk); size >= 1<<12; i++ {
		err := ballast(filepath.Join(dir, fmt.Sprintf("ballast-%d", i)), size)
		switch {
		case errors.Is(err, unix.ENOSPC):
			size /= 2
		case err != nil:
			return err
		}
	}
	return nil
}

func free(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Bavail * uint64(st.Bsize)
}

// until polls the node's status.
func until(ctx context.Context, t *testing.T, n *node.Node, what string,
	ok func(*pb.NodeStatusResponse) bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !ok(n.Status()) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			s := n.Status()
			t.Fatalf("not in time: %s; %v, %d bytes free, %q", what, s.History, s.DiskFree,
				s.WriteBlocked)
		}
	}
}

// TestWatermark: below the watermark writes are refused with the reason, while reads, collection
// and the end of transactions continue; once there is space, writes are accepted again.
func TestWatermark(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d := disk.New(t, smallDisk)
	n, err := openSmall(ctx, filepath.Join(d.Dir(), "node"), watermark)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := workload.Prepare(ctx, n.DB(), 3); err != nil {
		t.Fatal(err)
	}
	put := func(row, value string) error {
		return n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(row, acked, []byte(value))
			return nil
		})
	}
	for i := range 20 {
		if err := put("10/a", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	waste := filepath.Join(d.Dir(), "ballast")
	if err := ballast(waste, free(t, d.Dir())-watermark/2); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, n, "the node sees that the disk is full", func(s *pb.NodeStatusResponse) bool {
		return s.WriteBlocked != ""
	})
	err = put("10/b", "refused")
	if !errors.Is(err, percolator.ErrDiskFull) || !errors.Is(err, percolator.ErrUnavailable) ||
		!strings.Contains(err.Error(), "free disk space is below the watermark") {
		t.Errorf("a write to a full disk: %v", err)
	}
	until(ctx, t, n, "old versions are collected on the full disk",
		func(s *pb.NodeStatusResponse) bool {
			return s.History.Collected >= 19
		})
	s, err := n.DB().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, err := s.Get(ctx, "10/a", acked); err != nil || !ok || string(v) != "19" {
		t.Errorf("a read from a full disk: %q, %v, %v", v, ok, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := n.DB().DropTable(ctx, workload.Table); err != nil {
		t.Errorf("a table cannot be dropped to make room: %v", err)
	}
	if err := os.Remove(waste); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, n, "there is room again", func(s *pb.NodeStatusResponse) bool {
		return s.WriteBlocked == ""
	})
	if err := workload.Prepare(ctx, n.DB(), 3); err != nil {
		t.Fatal(err)
	}
	if err := put("10/b", "taken"); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// fullChild writes until it is killed, or until the full disk ends it, and prints the acknowledged
// writes.
func fullChild(dir string) error {
	ctx := context.Background()
	n, err := openSmall(ctx, dir, 1<<20)
	if err != nil {
		return err
	}
	if err := workload.Prepare(ctx, n.DB(), 3); err != nil {
		return err
	}
	fmt.Println("ready")
	var workers sync.WaitGroup
	padding := bytes.Repeat([]byte("x"), 4<<10)
	pad := percolator.Column{Table: workload.Table, Name: "pad"}
	for w := range 4 {
		workers.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				var at percolator.Timestamp
				err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
					tx.Set("10/"+id, acked, []byte(id))
					tx.Set("10/"+id, pad, padding)
					if i%2 == 0 {
						tx.Set("f0/"+id, acked, []byte(id))
					}
					return nil
				}, percolator.CommittedAt(&at))
				if err == nil {
					fmt.Printf("acked %s %d %v\n", id, at, i%2 == 0)
					continue
				}
				// the disk is full, or the node has stopped for it
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	workers.Wait()
	return nil
}

// TestRawFullDisk: another program fills the disk completely at a random moment. The node may stop
// or crash; once there is space it starts, with every acknowledged commit.
func TestRawFullDisk(t *testing.T) {
	d, rng := disk.New(t, smallDisk), rand.New(rand.NewPCG(*seed, 2))
	dir := filepath.Join(d.Dir(), "node")
	t.Setenv(childFull, "1")
	w := &witness{rows: map[string]bool{}}
	for range min(*kills, 3) {
		w.life(t, dir, time.Duration(300+rng.IntN(700))*time.Millisecond, func(*os.Process) error {
			err := takeAll(d.Dir())
			// while the node keeps trying to write
			<-time.After(time.Duration(300+rng.IntN(700)) * time.Millisecond)
			return err
		})
		waste, err := filepath.Glob(filepath.Join(d.Dir(), "ballast-*"))
		if err != nil || len(waste) == 0 {
			t.Fatal(waste, err)
		}
		for _, path := range waste {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		w.checkAfterFull(t, dir)
		t.Logf("%d transactions acknowledged so far", len(w.rows))
	}
	if len(w.rows) == 0 {
		t.Fatal("nothing was ever acknowledged")
	}
}

func (w *witness) checkAfterFull(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := openSmall(ctx, dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	w.checkRows(ctx, t, n)
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}
