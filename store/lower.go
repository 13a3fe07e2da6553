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

// A memtable that is opened again after a crash must be as large as the one that its log file was
// written for: Badger replays the file into one arena and ends the process when that is full. The
// size is therefore kept in the store's directory, and only lowered when no log file of larger
// memtables is left. Open calls this, before anything else uses the databases.

// memTableFile has the largest memtable's size that a log file in the directory may be of.
const memTableFile = "MEMTABLE"

// fitMemTables makes sure that the log files fit into memtables of o.MemTableSize: if
// those that were left behind may not, their memtables are opened at the size that they
// had, and written to tables.
func fitMemTables(o Options) error {
	had, err := memTablesHad(o)
	if err != nil {
		return err
	}
	if had > o.MemTableSize {
		larger := o
		larger.MemTableSize = had
		if err := writeOut(larger, filepath.Join(o.Dir, stateDirName)); err != nil {
			return err
		}
	}
	if had == o.MemTableSize {
		return nil
	}
	// durable before a memtable of that size is
	return replaceFile(o.Dir, memTableFile, fmt.Sprintln(o.MemTableSize))
}

// writeOut opens a database and closes it, for its memtables to become tables. Without a log file
// there is nothing to do.
func writeOut(o Options, dir string) error {
	paths, err := memTableFiles(dir)
	if err != nil || len(paths) == 0 {
		return err
	}
	db, err := openBadger(o.badgerOptions(dir, badgerLog{o.Logger, &badgerCounts{}}))
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("store: write out memtables of %d bytes: %w", o.MemTableSize, err)
	}
	return nil
}

// memTableFiles are the log files of Badger's memtables; none where there is no directory.
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

// memTableExt is how the names of those files end.
const memTableExt = ".mem"

// memTablesHad is the size on record, or, of a store from before there was one, a size that is
// enough; 0: there are no log files.
func memTablesHad(o Options) (int64, error) {
	text, err := os.ReadFile(filepath.Join(o.Dir, memTableFile))
	if err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || n < minMemTableSize {
			return 0, fmt.Errorf("%w: %s in %s has %q", ErrDamaged, memTableFile, o.Dir, text)
		}
		return n, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("store: read memtables' size: %w", err)
	}
	var most int64
	paths, err := memTableFiles(filepath.Join(o.Dir, stateDirName))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return 0, fmt.Errorf("store: look at log file: %w", err)
		}
		most = max(most, info.Size(), minMemTableSize)
	}
	return most, nil
}
