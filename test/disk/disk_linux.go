// Package disk gives tests a disk whose power can fail: an ext4 file system in a file on a loop device, and the ioctl
// after which it drops every write, also those of its own journal. What was not synced is gone when it is mounted again.
// (Killing the mount alone loses nothing: the page cache stays.)
package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	shutdownRequest = 0x8004587d // EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32)
	shutdownNoFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
)

// Disk is a mounted file system. It is taken down with the test.
type Disk struct {
	t            testing.TB
	image, mount string
	mounted      bool
}

// New makes a file system of at most size bytes, in a sparse file, or skips the test where that is not allowed: it needs
// root, mkfs.ext4 and loop devices.
func New(t testing.TB, size int64) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a power loss needs root, to mount a file system")
	}
	dir := t.TempDir()
	d := &Disk{t: t, image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mount")}
	f, err := os.Create(d.image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err = errors.Join(err, os.Mkdir(d.mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("a power loss needs mkfs.ext4: %v: %s", err, out)
	}
	if err := d.Mount(); err != nil {
		t.Skipf("a power loss needs loop devices: %v", err)
	}
	t.Cleanup(d.Unmount)
	return d
}

// Dir is where the file system is mounted.
func (d *Disk) Dir() string { return d.mount }

// Mount mounts it again after Unmount: the power is back.
func (d *Disk) Mount() error {
	out, err := exec.Command("mount", "-o", "loop", d.image, d.mount).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount: %w: %s", err, out)
	}
	d.mounted = true
	return nil
}

// Unmount takes it down. Nobody may have files open on it.
func (d *Disk) Unmount() {
	if !d.mounted {
		return
	}
	if err := unix.Unmount(d.mount, 0); err != nil {
		d.t.Errorf("unmount: %v", err)
		_ = unix.Unmount(d.mount, unix.MNT_DETACH)
	}
	d.mounted = false
}

// Freeze stops a child process and returns when all its threads stand still. A process that runs on while the power is
// cut can be told that a sync has succeeded whose data never reached the image; a real power loss leaves nobody to be told.
func Freeze(pid int) error {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

// Cut makes the power fail.
func (d *Disk) Cut() error {
	f, err := os.Open(d.mount)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return unix.IoctlSetPointerInt(int(f.Fd()), shutdownRequest, shutdownNoFlush)
}
