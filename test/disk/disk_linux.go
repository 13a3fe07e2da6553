// Package disk provides tests with a disk whose power can fail: an ext4 file system in a file on
// a loop device, and the ioctl after which it drops every write, also those of its own journal.
// Unsynced data is gone when it is mounted again. (Unmounting alone loses nothing, since the page
// cache survives.) It also measures the bytes written to the device.
package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	shutdownRequest = 0x8004587d // EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32)
	shutdownNoFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// Disk is a mounted file system.
type Disk struct {
	image, mount string
	mounted      bool
}

// ErrUnable is wrapped by errors of Make on machines without the privileges or tools. New then
// skips the test.
var ErrUnable = errors.New("a file system of a test's own needs root, mkfs.ext4 and loop devices")

// New creates a file system of at most size bytes, in a sparse file, and removes it when the test
// ends. Without root, mkfs.ext4 and loop devices it skips the test. mkfs are additional options of
// mkfs.ext4.
func New(t testing.TB, size int64, mkfs ...string) *Disk {
	t.Helper()
	d, err := Make(t.TempDir(), size, mkfs...)
	if errors.Is(err, ErrUnable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Make creates a file system of at most size bytes in a directory, which it creates.
func Make(dir string, size int64, mkfs ...string) (*Disk, error) {
	if os.Geteuid() != 0 {
		return nil, ErrUnable
	}
	d := &Disk{image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mount")}
	if err := os.MkdirAll(d.mount, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		return nil, err
	}
	// All inode tables at once: the kernel would write them in the background of what is measured.
	args := append([]string{"-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, mkfs...)
	if out, err := exec.Command("mkfs.ext4", append(args, d.image)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w: %s", ErrUnable, err, out)
	}
	if err := d.Mount(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return d, nil
}

// Dir returns the directory at which the file system is mounted.
func (d *Disk) Dir() string { return d.mount }

// Mount mounts the file system, again after Unmount: the power is back. It does so on another
// loop device: the one before may still be mounted in the mount namespace of some process,
// without power, and a second mount of one device is the first one again.
func (d *Disk) Mount() error {
	out, err := exec.Command("losetup", "--find", "--show", d.image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("losetup: %w: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	mounted, err := exec.Command("mount", device, d.mount).CombinedOutput()
	// The kernel detaches the device when its last mount ends.
	if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
		return fmt.Errorf("losetup: %w: %s", err, out)
	}
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, mounted)
	}
	d.mounted = true
	return nil
}

// Unmount unmounts the file system, if it is mounted. If a process has files open on it, Unmount
// detaches it and returns an error.
func (d *Disk) Unmount() error {
	if !d.mounted {
		return nil
	}
	d.mounted = false
	if err := unix.Unmount(d.mount, 0); err != nil {
		_ = unix.Unmount(d.mount, unix.MNT_DETACH)
		return fmt.Errorf("unmount: %w", err)
	}
	return nil
}

// Sync writes all that is dirty to the device: files, mapped ones too, and the file
// system's journal.
func (d *Disk) Sync() error {
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.Syncfs(int(f.Fd()))
}

// sectorBytes is the unit of the kernel's counters, whatever the device's own sectors are.
const sectorBytes = 512

// Written returns the number of bytes written to the device, as data and by the file system's
// journal. The counter belongs to the loop device, which outlives the mount: only differences
// within one mount mean something.
func (d *Disk) Written() (int64, error) { return Written(d.mount) }

// Written returns the number of bytes written so far to the block device under path, by all
// programs.
func Written(path string) (int64, error) {
	var at unix.Stat_t
	if err := unix.Stat(path, &at); err != nil {
		return 0, fmt.Errorf("disk: stat %s: %w", path, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(at.Dev),
		unix.Minor(at.Dev)))
	if err != nil {
		return 0, fmt.Errorf("disk: %w", err)
	}
	const sectorsWritten = 6 // Documentation/block/stat.rst
	fields := strings.Fields(string(text))
	if len(fields) <= sectorsWritten {
		return 0, fmt.Errorf("disk: no counter of sectors written in %q", text)
	}
	n, err := strconv.ParseInt(fields[sectorsWritten], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("disk: parse the number of sectors written: %w", err)
	}
	return n * sectorBytes, nil
}

// Freeze stops a child process and returns when all its threads have stopped. Otherwise, while
// the power is cut, a sync could return success to the process although its data never reaches
// the image, which cannot happen in a real power loss.
func Freeze(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

// Cut simulates the power failure.
func (d *Disk) Cut() error {
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.IoctlSetPointerInt(int(f.Fd()), shutdownRequest, shutdownNoFlush)
}
