package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A memtable that is opened again after a crash must be at least as large as when its log
// file was written, because Badger replays the file into one arena and ends the process when
// that is full. The size is therefore kept in the store's directory, and lowered only when no
// log file of a larger memtable is left. Open does this before anything uses the database.

// memTableFile contains the size of the largest memtable of which there may be a log file.
const memTableFile = "MEMTABLE"

// fitMemTables ensures that all log files fit into memtables of o.MemTableSize. If those that
// were left behind may not, it opens them at their former size and writes them to tables.
func (s *Store) fitMemTables() error {
	o := s.opts
	had, err := recordedMemTableSize(o)
	if err != nil {
		return err
	}
	if had > o.MemTableSize {
		larger := o
		larger.MemTableSize = had
		if err := s.flushMemTables(larger, filepath.Join(o.Dir, stateDirName)); err != nil {
			return err
		}
	}
	if had == o.MemTableSize {
		return nil
	}
	// The size is durable before there is a memtable of that size.
	return replaceFile(o.Dir, memTableFile, fmt.Sprintln(o.MemTableSize))
}

// flushMemTables opens and closes the database, so that its memtables become tables. It does
// nothing if there is no log file.
func (s *Store) flushMemTables(o Options, dir string) error {
	paths, err := memTableFiles(dir)
	if err != nil || len(paths) == 0 {
		return err
	}
	db, err := s.openBadger(o.badgerOptions(dir, s.badgerLog()))
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("store: flush memtables of %d bytes: %w", o.MemTableSize, err)
	}
	return nil
}

// memTableFiles returns the log files of Badger's memtables; none if there is no directory.
func memTableFiles(dir string) ([]string, error) {
	entries, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == memTableExt {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// memTableExt is the extension of memtables' log files.
const memTableExt = ".mem"

// recordedMemTableSize returns the recorded size of memtables. Without a record it returns a size that
// is enough for all log files, or 0 if there are none.
func recordedMemTableSize(o Options) (int64, error) {
	text, err := os.ReadFile(filepath.Join(o.Dir, memTableFile))
	if err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n < minMemTableSize {
			return 0, fmt.Errorf("%w: %s in %s contains %q, not a size of at least %d bytes", ErrDamaged,
				memTableFile, o.Dir, text, minMemTableSize)
		}
		return n, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("store: read MEMTABLE: %w", err)
	}
	var most int64
	paths, err := memTableFiles(filepath.Join(o.Dir, stateDirName))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return 0, fmt.Errorf("store: inspect a log file: %w", err)
		}
		most = max(most, info.Size(), minMemTableSize)
	}
	return most, nil
}
