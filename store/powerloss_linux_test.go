package store_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/test/disk"
)

var powerLosses = flag.Int("power-losses", 10, "rounds of TestPowerLoss")

const (
	powerLossImageBytes  = 1 << 30 // sparse
	powerLossMaxSteps    = 120
	powerLossNoSyncTries = 10
)

// powerLoss runs the writer until the power fails, and returns what is wrong after it is back. If freeze is set the writer
// is stopped first, and everything that it had acknowledged must be there. If not, the power fails in the middle of what
// it does; what it acknowledges from then on does not count: an fdatasync that runs while ext4 shuts down may return
// success for data whose extents stay unwritten. A real power loss leaves nobody to return to.
func powerLoss(t *testing.T, d *disk.Disk, m *model, acks int, freeze bool) (acknowledged int, lost error) {
	t.Helper()
	dir := filepath.Join(d.Dir(), "store")
	out, kill, wait, pid := startWriter(t, dir)
	var cutErr error
	got, failure := m.follow(out, acks, func() bool {
		if freeze {
			cutErr = disk.Freeze(pid)
		}
		if cutErr == nil {
			cutErr = d.Cut()
		}
		kill()
		return freeze
	})
	stderr := wait()
	if cutErr != nil {
		t.Skipf("EXT4_IOC_SHUTDOWN is not possible here: %v", cutErr)
	}
	if got < acks {
		t.Fatalf("the writer failed after %d of %d steps: %s %s", got, acks, failure, stderr)
	}
	if err := d.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := d.Mount(); err != nil {
		t.Fatalf("after the power loss: %v", err)
	}
	return got, m.check(dir)
}

// A power loss at any moment has lost nothing that was acknowledged, and what is left is a prefix of what was written
// (invariants 1, 2 and 6).
func TestPowerLoss(t *testing.T) {
	rounds := *powerLosses
	if testing.Short() {
		rounds = min(rounds, 3)
	}
	d, rng, m, total := disk.New(t, powerLossImageBytes), crashRand(t), newModel(), 0
	for i := range rounds {
		acks := 1 + rng.IntN(powerLossMaxSteps)
		if rng.IntN(3) == 0 { // a kill first: what it left in the page cache is shown again, and must be synced by then
			out, kill, wait, _ := startWriter(t, filepath.Join(d.Dir(), "store"))
			m.follow(out, 1+rng.IntN(20), func() bool { kill(); return true })
			wait()
			acks = 1 + rng.IntN(2) // before Badger has flushed it to a table
		}
		got, err := powerLoss(t, d, m, acks, i%2 == 0)
		if total += got; err != nil {
			t.Fatalf("power loss %d, after %d steps: %v", i, total, err)
		}
	}
	t.Logf("%d power losses, %d acknowledged steps", rounds, total)
}

// The test above can fail: without syncs it does.
func TestPowerLossFindsMissingSync(t *testing.T) {
	d, rng := disk.New(t, powerLossImageBytes), crashRand(t)
	t.Setenv(crashNoSyncEnv, "1") // also for the check, which must not sync what is to be missed
	for range powerLossNoSyncTries {
		m := newModel()
		_, err := powerLoss(t, d, m, 20+rng.IntN(powerLossMaxSteps), true)
		if err != nil {
			if !strings.Contains(err.Error(), "lost:") && !strings.Contains(err.Error(), "store:") {
				t.Errorf("an unexpected error: %v", err)
			}
			t.Logf("found, as it should be: %v", err)
			return
		}
		if err := os.RemoveAll(filepath.Join(d.Dir(), "store")); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("nothing was lost without syncs: this test cannot see what it is for")
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
		b.PutMutation(&mvcc.Mutation{Group: mvcc.GroupRaw, Cell: cell(fmt.Sprint(n), "c"), Value: bigValue(n)[:280_000]})
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
