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

	"github.com/percolator-go/percolator/store/space"
)

// Tables are Badger's immutable files. Each block has a checksum, and so does the index. The
// functions here compare them, on any goroutine and whether Badger is open or not, by mapping
// the file a second time and using Badger's own reader of tables. Badger's verification during
// reads (ChecksumVerificationMode) is off, because its iterators end at an unreadable block
// without an error: lookups would miss rows and compactions would drop them.

// verifyAtOpen is the number of bytes of tables that Open verifies completely. Of the other
// tables it verifies the index and the last block, and leaves the rest to the scrubber.
const verifyAtOpen = 1 << 30

// checkTables returns a *DamagedError for a table that is missing, truncated or, as far as it
// verifies (verifyAtOpen), damaged. newest is the greatest version in tables.
// It runs before Badger opens the tables on goroutines of its own, where a panic would end the
// process. Badger removes tables that the manifest does not list, such as one left unfinished by
// a crash, without reading them.
func checkTables(b badger.Options) (newest uint64, err error) {
	f, err := os.Open(filepath.Join(b.Dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a new store
	}
	if err != nil {
		return 0, fmt.Errorf("store: read MANIFEST: %w", err)
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, b.ExternalMagicVersion, b)
	if err != nil {
		return 0, &DamagedError{File: f.Name(), Err: err}
	}
	room := int64(verifyAtOpen)
	// Maps iterate in random order, so every table is verified completely sooner or later.
	for id := range manifest.Tables {
		size, err := verifyTable(table.NewFilename(id, b.Dir), room > 0, func(t *table.Table) {
			newest = max(newest, t.MaxVersion())
		})
		if err != nil {
			return 0, err
		}
		room -= size
	}
	return newest, nil
}

var errUnreadable = errors.New("a block or the index cannot be read")

// verifyTable returns the size of a table's file, and a *DamagedError if the file cannot be read
// or a checksum is wrong: with all that of any block, otherwise that of the index or the last
// block. An error for which space.IsShortage is true is no evidence of damage. If visit is not nil
// and the table is undamaged, verifyTable calls visit with it.
func verifyTable(name string, all bool, visit func(*table.Table)) (size int64, err error) {
	defer func() {
		switch {
		case space.IsShortage(err):
			err = fmt.Errorf("store: cannot verify %s: %w", name, err)
		case err != nil:
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
	err = verifyBlocks(data, id, all, visit)
	return info.Size(), errors.Join(err, unix.Munmap(data))
}

// verifyBlocks compares the checksums of a table. Damaged data can lead Badger's reader out of
// the table's bounds, and a sector that the disk cannot read causes a fault; both panic.
func verifyBlocks(data []byte, id uint64, all bool, visit func(*table.Table)) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %.80q", errUnreadable, fmt.Sprint(p))
		}
	}()
	mode := options.OnBlockRead // verify the last block, which is read for the greatest key
	if all {
		mode = options.NoVerification // VerifyChecksum does it, and reports the position
	}
	t, err := table.OpenInMemoryTable(data, id, &table.Options{ChkMode: mode})
	if err == nil && all {
		err = t.VerifyChecksum()
	}
	if err == nil && visit != nil {
		visit(t)
	}
	return err
}

// verifyTables verifies the tables that pick selects, or all if it is nil. checkReplaced (hold.go)
// verifies tables that a compaction replaces meanwhile.
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

// verifyLive verifies the checksums of one Badger table. It returns nil if a compaction has deleted the
// table meanwhile.
func (d *database) verifyLive(id uint64) error {
	_, err := verifyTable(table.NewFilename(id, d.db.Opts().Dir), true, nil)
	if space.IsShortage(err) {
		return err
	}
	if err != nil && !slices.ContainsFunc(d.db.Tables(), func(t badger.TableInfo) bool {
		return t.ID == id
	}) {
		return nil // unreadable because it was being deleted
	}
	d.verified.done(id)
	return err
}

// tableExt is the extension of tables' files.
const tableExt = ".sst"

// checkFiles returns a *space.ShortError if opening the store's tables would use part of the
// reserve of files.
func (s *Store) checkFiles() error {
	tables, err := filepath.Glob(filepath.Join(s.opts.Dir, stateDirName, "*"+tableExt))
	if err != nil {
		return err
	}
	return s.space.RoomToOpen(uint64(len(tables)))
}
