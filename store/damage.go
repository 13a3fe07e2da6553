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

// A damaged table may contain rows of any tablet, so it is unknown what a store without it would
// lack. Therefore the first damage makes the store fail permanently: reads and writes of the state
// fail, on any goroutine, and so does every later Open, because a compaction may have copied the
// damage and deleted the table. The file DAMAGED records the damage. A node with a damaged store is
// replaced like one that has lost its disk.

// damagedFile contains the name of the damaged file and the error of the check.
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

// Damaged returns a *DamagedError if a damaged table was found. It costs one atomic load.
func (s *Store) Damaged() error { return s.damage.err() }

// markDamaged makes the store fail permanently if err reports damage. It returns err.
func (s *Store) markDamaged(err error) error {
	var found *DamagedError
	if !errors.As(err, &found) {
		return err
	}
	_ = s.state.writer.fail(found) // before Damaged reports the damage
	if !s.damage.found.CompareAndSwap(nil, found) {
		return err
	}
	s.opts.Logger.Error("store: damaged; refusing reads and writes of the state", "file", found.File,
		"error", found.Err)
	text := fmt.Sprintf("%s\n%v\n", found.File, found.Err)
	if err := replaceFile(s.opts.Dir, damagedFile, text); err != nil {
		s.opts.Logger.Error("store: cannot record the damage", "error", err)
	}
	return err
}

// readDamage returns the recorded damage as a *DamagedError, or nil.
func readDamage(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, damagedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: read DAMAGED: %w", err)
	}
	file, what, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return &DamagedError{File: file, Err: fmt.Errorf("found earlier: %s", what)}
}
