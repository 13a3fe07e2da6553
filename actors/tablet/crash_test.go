package tablet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A crash of a node's process, as its disk shows it: image copies the files as they are, without
// closing anything, and goBack opens the store from such a copy. The copy of Badger has all visible
// effects, which is more than a crash of the machine leaves.

// image copies Badger's directory first, then the log, which is never behind it.
func (m *member) image() (dir string) {
	m.g.tb.Helper()
	dir = m.g.tb.TempDir()
	m.imageState(dir)
	copyDir(m.g.tb, m.dir, dir)
	return dir
}

// imageState copies Badger's directory and repeats the copy while files change: after opening, a
// memtable is flushed.
func (m *member) imageState(to string) {
	m.g.tb.Helper()
	from, to := filepath.Join(m.dir, "db"), filepath.Join(to, "db")
	files := func() string {
		names, err := filepath.Glob(from + "/*")
		if err != nil {
			m.g.tb.Fatal(err)
		}
		return fmt.Sprint(names)
	}
	m.g.wait("a store that rests", func() bool {
		before := files()
		if err := errors.Join(os.RemoveAll(to), tryCopyDir(from, to)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			m.g.tb.Fatal(err)
		}
		return before == files()
	})
}

// goBack opens the node's store from a copy of an image. The tablets are not started.
func (m *member) goBack(image string) {
	m.g.tb.Helper()
	m.stopAll()
	if err := errors.Join(m.logs.Stop(), m.store.Close()); err != nil {
		m.g.tb.Fatal(err)
	}
	m.dir = m.g.tb.TempDir()
	copyDir(m.g.tb, image, m.dir)
	m.open()
}

// copyDir copies a directory, except directories that exist at the target. It skips zeros, so files
// stay sparse.
func copyDir(tb testing.TB, from, to string) {
	tb.Helper()
	if err := tryCopyDir(from, to); err != nil {
		tb.Fatal(err)
	}
}

func tryCopyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, path[len(from):])
		_, err = os.Stat(target)
		switch {
		case e.IsDir() && err == nil && path != from:
			return fs.SkipDir
		case e.IsDir():
			return os.MkdirAll(target, 0o700)
		}
		return copyFile(path, target)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	block, zeros := make([]byte, 64<<10), string(make([]byte, 64<<10))
	for at := int64(0); ; {
		n, err := in.Read(block)
		if errors.Is(err, io.EOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
		if string(block[:n]) != zeros[:n] {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
}
