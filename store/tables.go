package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"golang.org/x/sys/unix"
)

// Tables are Badger's immutable files. Each block has a checksum, and so has the index. Here they
// are compared by functions that any goroutine may call, with Badger open or not: the file is
// mapped a second time and given to Badger's own reader of tables. Badger is not asked to compare
// them when it reads (ChecksumVerificationMode): its iterators end at a block that they cannot
// read, so that lookups would miss rows, and compactions drop them, without an error.

// verifyAtOpen is how many bytes of tables Open verifies as a whole; of those beyond, it looks at
// the index and the last block, and the scrubber at the rest.
const verifyAtOpen = 1 << 30

// checkTables returns a *DamagedError for a table that is missing, cut short, or damaged. Badger
// opens tables in goroutines of its own, where a panic ends the process. A table that the manifest
// does not name, such as one whose making was cut short by a crash, is removed by Badger without
// being read.
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
		return &DamagedError{File: f.Name(), Err: err}
	}
	room := int64(verifyAtOpen)
	// in random order: one that cannot be used is met sooner or later
	for id := range manifest.Tables {
		size, err := verifyTable(table.NewFilename(id, b.Dir), room > 0)
		if err != nil {
			return err
		}
		room -= size
	}
	return nil
}

var errUnreadable = errors.New("a block or the index cannot be read")

// verifyTable returns the size of a table's file, and a *DamagedError if it cannot be read or its
// checksums do not fit: those of all blocks, or else of the index and the last block.
func verifyTable(name string, all bool) (size int64, err error) {
	defer func() {
		if err != nil {
			err = &DamagedError{File: name, Err: err}
		}
	}()
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map %d bytes: %w", info.Size(), err)
	}
	id, _ := table.ParseFileID(name)
	err = verifyBlocks(data, id, all)
	return info.Size(), errors.Join(err, unix.Munmap(data))
}

// verifyBlocks compares the checksums of a table. What is damaged leads Badger's reader out of the
// table's bounds, and a sector that the disk cannot read is a fault: both are panics.
func verifyBlocks(data []byte, id uint64, all bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %.80q", errUnreadable, fmt.Sprint(p))
		}
	}()
	mode := options.OnBlockRead // of the last block, which has the greatest key
	if all {
		mode = options.NoVerification // VerifyChecksum does it, and says where
	}
	t, err := table.OpenInMemoryTable(data, id, &table.Options{ChkMode: mode})
	if err != nil || !all {
		return err
	}
	return t.VerifyChecksum()
}

// verifyTables verifies the tables that pick wants, or all if it is nil. A table that a compaction
// has replaced meanwhile is verified by whoever holds it (hold.go).
func (d *database) verifyTables(pick func(badger.TableInfo) bool) error {
	for _, t := range d.db.Tables() {
		if pick != nil && !pick(t) {
			continue
		}
		if err := d.verifyLive(t.ID); err != nil {
			return err
		}
	}
	return nil
}

// verifyLive verifies one table, which may be deleted at any time.
func (d *database) verifyLive(id uint64) error {
	_, err := verifyTable(table.NewFilename(id, d.db.Opts().Dir), true)
	if err != nil && !slices.ContainsFunc(d.db.Tables(), func(t badger.TableInfo) bool {
		return t.ID == id
	}) {
		return nil // it was cut short because it is deleted
	}
	d.verified.done(id)
	return err
}
