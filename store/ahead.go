package store

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// aheadBytes is how much of a log file is given its place on the disk at once, before it is written. Badger makes a log
// file as one hole, so that every sync had to make room for some pages in the file system's own journal, and wait for that
// as well: with it a sync of 8 kB takes ext4 a half longer on a fast disk, and one more flush of the disk on any
// (docs/performance.md).
const aheadBytes = 512 << 10

// allocate writes the pages of a file between two offsets as they are: a hole becomes zeros that have their place on the
// disk with the next sync. What others write there through a mapping of their own at the same time is not touched, as no byte
// is changed. An error, of a kernel before Linux 5.14 or a full disk, has changed nothing.
func allocate(f *os.File, from, to int64) error {
	if to <= from {
		return nil
	}
	page := int64(os.Getpagesize())
	from = from / page * page
	m, err := unix.Mmap(int(f.Fd()), from, int(to-from), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("store: map log file: %w", err)
	}
	if err := unix.Madvise(m, unix.MADV_POPULATE_WRITE); err != nil {
		_ = unix.Munmap(m)
		return fmt.Errorf("store: allocate log file: %w", err)
	}
	return unix.Munmap(m)
}
