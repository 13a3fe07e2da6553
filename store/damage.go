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

// A damaged table may hold rows of any tablet, so it is not known what a store without it
// would lack. Therefore the first damage ends the store: reads and writes fail with it, on
// any goroutine, and every later Open fails too, because a compaction may have copied the
// damage and deleted the table. The file DAMAGED keeps what was found. A node that has lost
// its store is replaced like one that has lost its disk.

// damagedFile contains the name of the damaged file and what is wrong with it.
const damagedFile = "DAMAGED"

// damage is the first damage that was found, if any.
type damage struct{ found atomic.Pointer[DamagedError] }

// err returns the damage; nil if none was found.
func (d *damage) err() error {
	if found := d.found.Load(); found != nil {
		return found
	}
	return nil
}

// Damaged returns a *DamagedError if a table was found damaged. It costs one load.
func (s *Store) Damaged() error { return s.damage.err() }

// markDamaged ends the store if err says that it is damaged. It returns err.
func (s *Store) markDamaged(err error) error {
	var found *DamagedError
	if !errors.As(err, &found) || !s.damage.found.CompareAndSwap(nil, found) {
		return err
	}
	s.opts.Logger.Error("store: damaged; nothing is read or written any more", "file", found.File,
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
