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

const (
	powerLossImageBytes = 1 << 30 // sparse
	powerLossMaxActions = 500
	missingSyncTries    = 40
)

// powerLoss runs the process until the power fails, and restores the files. If freeze is set the
// process is stopped first, and everything acknowledged must be present. Otherwise the power fails
// during its work; acknowledgments after that do not count: an fdatasync that runs while ext4 shuts
// down may succeed for data whose extents stay unwritten. After a real power loss there is no
// caller to receive it.
func powerLoss(t *testing.T, d *disk.Disk, a *account, enough int, freeze bool) error {
	t.Helper()
	v := startVictim(t, filepath.Join(d.Dir(), "store"))
	var cut error
	lost := a.follow(v, enough, func() bool {
		if freeze {
			cut = disk.Freeze(v.cmd.Process.Pid)
		}
		if cut == nil {
			cut = d.Cut()
		}
		v.kill()
		return freeze
	}, nil)
	if cut != nil {
		t.Skipf("EXT4_IOC_SHUTDOWN is not possible here: %v", cut)
	}
	if err := errors.Join(d.Unmount(), d.Mount()); err != nil {
		t.Fatalf("after the power loss: %v", err)
	}
	return lost
}

// A power loss at any moment has lost nothing acknowledged, and the effects of each entry are
// complete after they were applied again, whatever part of the state was written.
func TestPowerLoss(t *testing.T) {
	rounds := *powerLosses
	if testing.Short() {
		rounds = min(rounds, 3)
	}
	d, rng, a := disk.New(t, powerLossImageBytes), crashRand(t), &account{w: newWorld()}
	for i := range rounds {
		// a kill first: the data in the page cache is read, and must not be mistaken for durable
		// data
		if rng.IntN(3) == 0 {
			v := startVictim(t, filepath.Join(d.Dir(), "store"))
			if err := a.follow(v, 1+rng.IntN(40), func() bool {
				v.kill()
				return true
			}, nil); err != nil {
				t.Fatalf("LOST: kill before power loss %d, after %d actions: %v", i, a.actions, err)
			}
		}
		if err := powerLoss(t, d, a, 1+rng.IntN(powerLossMaxActions), i%2 == 0); err != nil {
			t.Fatalf("LOST: power loss %d, after %d actions: %v", i, a.actions, err)
		}
	}
	v := startVictim(t, filepath.Join(d.Dir(), "store"))
	if err := a.follow(v, 1, func() bool { v.kill(); return true }, nil); err != nil {
		t.Fatalf("LOST: after the last power loss and %d actions: %v", a.actions, err)
	}
	t.Logf("%d power losses, %d actions; %d entries applied again at most", rounds, a.actions,
		a.replayed)
}

// TestPowerLossFindsMissingSync: without syncs, the check that TestPowerLoss makes fails.
func TestPowerLossFindsMissingSync(t *testing.T) {
	d, rng, a := disk.New(t, powerLossImageBytes), crashRand(t), &account{w: newWorld()}
	t.Setenv(crashNoSyncEnv, "1")
	for range missingSyncTries {
		if err := powerLoss(t, d, a, 20+rng.IntN(powerLossMaxActions), true); err != nil {
			t.Logf("found, as it should be: %v", err)
			return
		}
	}
	t.Error("nothing was lost without syncs: this test cannot see what it is for")
}

const crashKeys, bigBytes = 60, 280_000

func bigValue(round uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%08d", round), bigBytes/8)
}

// On a disk filled by another program's file, writes fail with an error long before a memory map
// lacks space, and nothing is lost. (A store that itself fills a disk as small as some of its
// tables may end by SIGBUS in a compaction: docs/limitations.md.)
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
			t.Fatalf("round %d: writes continue while the disk is full: %v", n, full)
		}
		b := round(n, crashKeys)
		b.PutMutation(&mvcc.Mutation{
			Group: mvcc.GroupRaw, Cell: cell(fmt.Sprint(n), "c"), Value: bigValue(n),
		})
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
