package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/table"
)

// checkTables returns ErrDamaged for a table file that has been cut short. Badger opens tables in goroutines of its own,
// and a footer that points outside of the file panics there, which nobody can recover: so it is looked at before. What
// is wrong inside those bounds, Badger's checksums find. A table that the manifest does not name, such as one whose
// making was cut short by a crash, is removed by Badger without being read.
func checkTables(b badger.Options) error {
	f, err := os.Open(filepath.Join(b.Dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err != nil {
		return fmt.Errorf("store: read manifest: %w", err)
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, b.ExternalMagicVersion, b)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, f.Name(), err)
	}
	for id := range manifest.Tables {
		name := table.NewFilename(id, b.Dir)
		if err := checkTable(name); err != nil {
			return fmt.Errorf("%w: table %s: %w", ErrDamaged, name, err)
		}
	}
	return nil
}

var errCutShort = errors.New("the file is cut short")

// checkTable follows the footer backwards: … index, its length, its checksum, the checksum's length, the last three of 4,
// any and 4 bytes, big-endian.
func checkTable(name string) error {
	const number = 4
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	left := info.Size()
	for range 2 { // the checksum, then the index
		var buf [number]byte
		if left < number {
			return errCutShort
		}
		if _, err := f.ReadAt(buf[:], left-number); err != nil {
			return err
		}
		if left -= number + int64(binary.BigEndian.Uint32(buf[:])); left < 0 {
			return errCutShort
		}
	}
	return nil
}
