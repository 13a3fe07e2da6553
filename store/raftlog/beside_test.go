package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/test/disk"
)

// Readers see complete entries while segments are written, released and reused.
func TestReadersBesideAppends(t *testing.T) {
	const replicas, each = 3, 400
	l, err := Open(t.TempDir(), Options{Create: true, SegmentBytes: minSegmentBytes, CacheBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mustAppend(t, l, func(b *Batch) {
		for r := range uint64(replicas) {
			b.Begin(r, Position{}, nil)
		}
	})
	done, wg := make(chan struct{}), sync.WaitGroup{}
	for r := range uint64(replicas) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := readAll(l.Replica(r)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := uint64(1); i <= each; i++ {
		mustAppend(t, l, func(b *Batch) {
			for r := range uint64(replicas) {
				data := bytes.Repeat([]byte{byte(i)}, 2000)
				b.Append(r, []*raftpb.Entry{entry(i, 1, data)}, hardOf(1, 1, i))
			}
		})
		if i%20 == 0 {
			mustAppend(t, l, func(b *Batch) {
				for r := range uint64(replicas) {
					b.Checkpoint(r, i-10, nil)
					b.Truncate(r, i-10)
				}
			})
		}
	}
	close(done)
	wg.Wait()
}

// readAll reads the log as raft does for a follower: it may report entries that were truncated
// concurrently.
func readAll(r *Replica) error {
	first, err := r.FirstIndex()
	if err != nil {
		return err
	}
	last, err := r.LastIndex()
	if err != nil || last < first {
		return err
	}
	entries, err := r.Entries(first, last+1, 1<<40)
	if errors.Is(err, raft.ErrCompacted) {
		return nil
	}
	for i, e := range entries {
		want := first + uint64(i)
		if e.GetIndex() != want || len(e.Data) != 2000 || e.Data[1999] != byte(want) {
			return fmt.Errorf("entry %d is %d of %d bytes", want, e.GetIndex(), len(e.Data))
		}
	}
	return err
}

// On a full disk, appends are refused before anything is written, and accepted once there is space.
func TestDiskFullOnDisk(t *testing.T) {
	d := disk.New(t, 32<<20)
	dir := filepath.Join(d.Dir(), "log")
	o := Options{Create: true, SegmentBytes: 1 << 20}
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	mustAppend(t, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
	filler, err := os.Create(filepath.Join(d.Dir(), "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	space := unix.Statfs_t{}
	if err := unix.Statfs(d.Dir(), &space); err != nil {
		t.Fatal(err)
	}
	left := int64(3 << 20)
	if err := unix.Fallocate(int(filler.Fd()), 0, 0,
		int64(space.Bavail)*space.Bsize-left); err != nil {
		t.Fatal(err)
	}
	index, refused := uint64(1), new(Batch)
	for ; ; index++ {
		*refused = Batch{}
		refused.Append(1, []*raftpb.Entry{entry(index, 1, make([]byte, 50_000))},
			hardOf(1, 1, index))
		if err := l.Append(refused); errors.Is(err, ErrDiskFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, func(b *Batch) {
		b.Checkpoint(1, index-1, nil)
		b.Truncate(1, index-1)
	}) // frees space
	if err := errors.Join(l.Close(), filler.Truncate(0)); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(dir, o); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(refused); err != nil {
		t.Fatalf("there is space: %v", err)
	}
	if last, err := l.Replica(1).LastIndex(); last != index || index < 20 {
		t.Fatalf("the log ends at %d of %d, %v", last, index, err)
	}
}

// BenchmarkAppend appends one batch after the other, each synced.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10} {
		for _, recycled := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dKiB/recycled=%v", size>>10, recycled), func(b *testing.B) {
				l, err := Open(b.TempDir(), Options{Create: true})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				mustAppend(b, l, func(b *Batch) { b.Begin(1, Position{}, nil) })
				data, index := []byte(strings.Repeat("x", size)), uint64(0)
				step := func() {
					index++
					mustAppend(b, l, func(b *Batch) {
						b.Append(1, []*raftpb.Entry{entry(index, 1, data)}, hardOf(1, 1, index))
					})
					if recycled && index%64 == 0 {
						mustAppend(b, l, func(b *Batch) {
							b.Checkpoint(1, index, nil)
							b.Truncate(1, index)
						})
					}
				}
				for recycled && l.Stats().Spares == 0 {
					step()
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					step()
				}
			})
		}
	}
}
