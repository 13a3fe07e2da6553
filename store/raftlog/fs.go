package raftlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystem is one directory with the operations that the log needs. Tests substitute one that
// loses unsynced data.
type fileSystem interface {
	list() (names []string, err error)
	create(name string) (file, error) // of a name that does not exist
	open(name string) (file, error)
	rename(from, to string) error
	remove(name string) error
	sync() error // makes earlier creations, renames and removals durable
}

// file is the file of one segment.
type file interface {
	io.ReaderAt
	io.WriterAt
	close() error
	size() (int64, error)
	// reserve extends the file to size and allocates its blocks, so that a write within it cannot
	// fail for want of space. It fails with unix.ENOSPC or unix.EDQUOT if there is too little.
	reserve(size int64) error
	truncate(size int64) error
	sync() error // makes content and size durable
}

const fileMode = 0o600

// osDir is a directory of the operating system.
type osDir string

func (d osDir) path(name string) string { return filepath.Join(string(d), name) }

func (d osDir) list() (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (d osDir) create(name string) (file, error) {
	f, err := os.OpenFile(d.path(name), os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDir) open(name string) (file, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d osDir) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d osDir) remove(name string) error     { return os.Remove(d.path(name)) }

func (d osDir) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type osFile struct{ *os.File }

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) reserve(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.fill(size)
	}
	if err != nil {
		return fmt.Errorf("fallocate %s: %w", f.Name(), err)
	}
	return nil
}

// fill writes zeros, for file systems that cannot allocate blocks in advance.
func (f osFile) fill(size int64) error {
	for at := int64(0); at < size; at += aheadBytes {
		if _, err := f.WriteAt(zeros[:min(aheadBytes, size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (f osFile) truncate(size int64) error { return f.Truncate(size) }
func (f osFile) sync() error               { return unix.Fdatasync(int(f.Fd())) }
func (f osFile) close() error              { return f.Close() }
