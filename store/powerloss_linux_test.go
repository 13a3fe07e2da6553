package store_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

var powerLosses = flag.Int("power-losses", 10, "rounds of TestPowerLoss")

// EXT4_IOC_SHUTDOWN and its flag: from then on the file system drops every write, also those of its own journal that
// were not flushed. What was not synced is gone when it is mounted again, as after a power loss.
const (
	ext4Shutdown         = 0x8004587d // _IOR('X', 125, __u32)
	ext4ShutdownNoFlush  = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	powerLossImageBytes  = 1 << 30    // sparse
	powerLossMaxSteps    = 120
	powerLossNoSyncTries = 10
)

// disk is an ext4 file system in a file, on a loop device.
type disk struct {
	t            *testing.T
	image, mount string
	mounted      bool
}

// newDisk makes the file system, or skips the test where that is not allowed.
func newDisk(t *testing.T, size int64) *disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a power loss needs root, to mount a file system")
	}
	dir := t.TempDir()
	d := &disk{t: t, image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mount")}
	f, err := os.Create(d.image)
	if err == nil {
		err = f.Truncate(size)
		_ = f.Close()
	}
	if err == nil {
		err = os.Mkdir(d.mount, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("a power loss needs mkfs.ext4: %v: %s", err, out)
	}
	if out, err := d.tryMount(); err != nil {
		t.Skipf("a power loss needs loop devices: %v: %s", err, out)
	}
	t.Cleanup(d.unmount)
	return d
}

func (d *disk) tryMount() ([]byte, error) {
	out, err := exec.Command("mount", "-o", "loop", d.image, d.mount).CombinedOutput()
	d.mounted = err == nil
	return out, err
}

func (d *disk) unmount() {
	if !d.mounted {
		return
	}
	if err := unix.Unmount(d.mount, 0); err != nil {
		d.t.Errorf("unmount: %v", err)
		_ = unix.Unmount(d.mount, unix.MNT_DETACH)
	}
	d.mounted = false
}

// cut makes the power fail.
func (d *disk) cut() error {
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, ext4ShutdownNoFlush)
}

// powerLoss runs the writer until the power fails, and returns what is wrong after it is back. If freeze is set the writer
// is stopped first, and everything that it had acknowledged must be there. If not, the power fails in the middle of what
// it does; what it acknowledges from then on does not count: an fdatasync that runs while ext4 shuts down may return
// success for data whose extents stay unwritten. A real power loss leaves nobody to return to.
func powerLoss(t *testing.T, d *disk, m *model, acks int, freeze bool) (acknowledged int, lost error) {
	t.Helper()
	dir := filepath.Join(d.mount, "store")
	out, kill, wait, pid := startWriter(t, dir)
	var cutErr error
	got, failure := m.follow(out, acks, func() bool {
		if freeze {
			cutErr = stop(pid)
		}
		if cutErr == nil {
			cutErr = d.cut()
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
	d.unmount()
	if out, err := d.tryMount(); err != nil {
		t.Fatalf("mount after the power loss: %v: %s", err, out)
	}
	return got, m.check(dir)
}

// stop freezes a child process and returns when all its threads stand still.
func stop(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	_, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil)
	return err
}

// A power loss at any moment has lost nothing that was acknowledged, and what is left is a prefix of what was written
// (invariants 1, 2 and 6).
func TestPowerLoss(t *testing.T) {
	rounds := *powerLosses
	if testing.Short() {
		rounds = min(rounds, 3)
	}
	d, rng, m, total := newDisk(t, powerLossImageBytes), crashRand(t), newModel(), 0
	for i := range rounds {
		acks := 1 + rng.IntN(powerLossMaxSteps)
		if rng.IntN(3) == 0 { // a kill first: what it left in the page cache is shown again, and must be synced by then
			out, kill, wait, _ := startWriter(t, filepath.Join(d.mount, "store"))
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
	d, rng := newDisk(t, powerLossImageBytes), crashRand(t)
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
		if err := os.RemoveAll(filepath.Join(d.mount, "store")); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("nothing was lost without syncs: this test cannot see what it is for")
}

// A disk that fills up stops the writes with an error, long before a memory map has no room, and loses nothing.
func TestDiskFull(t *testing.T) {
	const size, watermark = 128 << 20, 48 << 20
	d := newDisk(t, size)
	dir := filepath.Join(d.mount, "store")
	options := func(o *store.Options) { o.MemTableSize, o.MinFreeBytes = 4<<20, watermark }
	s := open(t, dir, options)
	blocked, n := uint64(0), uint64(1)
	var err error
	for ; err == nil && n < size/bigBytes*2; n++ {
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
