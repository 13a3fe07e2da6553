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

// A crash of a node's process, as far as its disk can tell: image copies the files as
// they are, with nothing closed, and goBack opens the store again from such a copy. That
// of Badger has all effects that were visible: more than a crash of the machine leaves.

// image copies the directory: first Badger's, then the log, which is never behind.
func (m *member) image() (dir string) {
	m.g.tb.Helper()
	dir = m.g.tb.TempDir()
	m.imageState(dir)
	copyDir(m.g.tb, m.dir, dir)
	return dir
}

// imageState copies Badger's directory, once it has not changed meanwhile: after it was opened a
// memtable is written out.
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

// goBack has the node go on with a copy of an image. The tablets are not started.
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

// copyDir copies a directory, but for directories in it that are there already. Of files
// it writes what is not zero.
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
