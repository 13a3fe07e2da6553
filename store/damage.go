package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// A damaged table holds rows of any tablet: nobody can say what a store would be without
// it. So the first damage that is found ends the store: reads and writes fail with it,
// and so does Open ever after, because a compaction may have copied the damage and
// deleted the table. What was found is kept in the file DAMAGED. A node that has lost its
// store is replaced as one that has lost its disk.

// damagedFile says what was found: the file's name, and what is wrong with it.
const damagedFile = "DAMAGED"

// damage is what was found; nil: nothing.
type damage struct{ found atomic.Pointer[DamagedError] }

// err returns what was found.
func (d *damage) err() error {
	if found := d.found.Load(); found != nil {
		return found
	}
	return nil
}

// Damaged returns a *DamagedError once a table was found damaged. It costs one load.
func (s *Store) Damaged() error { return s.damage.err() }

// condemn ends the store if err says that it is damaged. It returns err.
func (s *Store) condemn(err error) error {
	var found *DamagedError
	if !errors.As(err, &found) || !s.damage.found.CompareAndSwap(nil, found) {
		return err
	}
	s.opts.Logger.Error("store: damaged: nothing is read or written any more", "file", found.File,
		"error", found.Err)
	_ = s.state.writer.fail(found)
	text := fmt.Sprintf("%s\n%v\n", found.File, found.Err)
	if err := replaceFile(s.opts.Dir, damagedFile, text); err != nil {
		s.opts.Logger.Error("store: cannot record the damage", "error", err)
	}
	return err
}

// readDamage returns the damage on record as a *DamagedError; nil: there is none.
func readDamage(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, damagedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: read what is damaged: %w", err)
	}
	file, what, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return &DamagedError{File: file, Err: fmt.Errorf("found before: %s", what)}
}
