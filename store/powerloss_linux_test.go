package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/disk"
)

const crashKeys, bigBytes = 60, 280_000

func bigValue(round uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%08d", round), bigBytes/8)
}

// A disk that fills up, here by somebody else's file, stops the writes with an error, long before a memory map has no room, and
// loses nothing. (A store that fills a disk as small as some of its tables by itself may end by SIGBUS in a compaction:
// docs/roadmap.md.)
func TestDiskFull(t *testing.T) {
	const size, watermark, others = 128 << 20, 80 << 20, 3 << 20
	d := disk.New(t, size)
	dir := filepath.Join(d.Dir(), "store")
	options := func(o *store.Options) { o.MemTableSize, o.MinFreeBytes = 4<<20, watermark }
	s := open(t, dir, options)
	filler, err := os.Create(filepath.Join(d.Dir(), "others"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	blocked, n := uint64(0), uint64(1)
	for ; err == nil && n < size/others*2; n++ {
		if full := unix.Fallocate(int(filler.Fd()), 0, 0, int64(n)*others); full != nil {
			t.Fatalf("round %d: writes go on while the disk is full: %v", n, full)
		}
		b := round(n, crashKeys)
		b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: cell(fmt.Sprint(n), "c"), Value: bigValue(n)})
		err = s.StateWriter().Commit([]*store.Batch{b})
		if s.WriteBlocked() != nil && blocked == 0 {
			blocked = n
		}
	}
	if !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("after %d rounds: %v, want ErrDiskFull", n, err)
	}
	if blocked == 0 || blocked >= n-2 {
		t.Errorf("writes were blocked from round %d on, and refused in round %d", blocked, n-1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, options)
	snap := s.Snap()
	defer snap.Close()
	if got, err := readRound(snap, crashKeys); got != n-2 || err != nil {
		t.Errorf("round %d of %d, %v", got, n-2, err)
	}
}
