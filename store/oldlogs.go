package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// An iterator of Badger's keeps the memtables that it reads, each with its log file, even after
// the memtable was flushed to a table. If the process is killed meanwhile, the next Open replays
// that file: old values are above younger tables, and if a compaction drops the tombstone of one
// of them but does not include the value, the value reappears. Therefore Open removes the log
// files of flushed memtables.
//
// Memtables are flushed in order, and the single writer's versions increase, so a log file
// without a version above those of all tables belongs to a flushed memtable. Only Badger knows
// the file's format, so Badger reads a copy of it, as the only file of a scratch database.

// scratchDirName is the name of the scratch database's directory inside Options.Dir.
const scratchDirName = "scratch"

// removeOldLogs removes the log files of memtables that were flushed to tables. newest is the
// greatest version in tables. It does nothing if the disk has no room for the copy of a log file.
func (s *Store) removeOldLogs(b badger.Options, newest uint64) error {
	paths, err := memTableFiles(b.Dir)
	if err != nil || len(paths) == 0 || newest == 0 {
		return err
	}
	if free, err := s.space.FreeBytes(); err != nil || free < s.space.Reserve()+4*uint64(b.MemTableSize) {
		s.opts.Logger.Warn("store: too little disk space to search for old log files", "free", free, "error", err)
		return nil
	}
	dir := filepath.Join(s.opts.Dir, scratchDirName)
	defer func() { _ = os.RemoveAll(dir) }()
	for _, path := range paths {
		version, err := versionOfLog(b, path, dir)
		if err != nil {
			return fmt.Errorf("store: read the version of %s: %w", path, err)
		}
		if version > newest {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("store: remove an old log file: %w", err)
		}
	}
	return nil
}

// versionOfLog returns the greatest version in a log file. It opens a copy of the file in dir, with
// the options b.
func versionOfLog(b badger.Options, path, dir string) (version uint64, err error) {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, dirMode)); err != nil {
		return 0, err
	}
	if err := copySparse(path, filepath.Join(dir, filepath.Base(path))); err != nil {
		return 0, err
	}
	b.Dir, b.ValueDir = dir, dir
	b.NumCompactors, b.Logger = 0, nil
	db, err := badger.OpenManaged(b)
	if err != nil {
		return 0, err
	}
	return db.MaxVersion(), db.Close()
}

// copySparse copies a file and leaves holes for blocks of zeros, which most of a log file may be.
func copySparse(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf, zeros, at := make([]byte, 64<<10), make([]byte, 64<<10), int64(0)
	for {
		n, err := io.ReadFull(in, buf)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out.Truncate(at)
		case err != nil:
			return err
		}
	}
}
