package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// durable syncs what a writer commits. Badger writes a Txn into the log file of its active memtable (NNNNN.mem), which
// is mapped into memory; durable has the same file open and syncs it with fdatasync. That is one flush of the disk for
// each commit, where Badger's own SyncWrites makes two, and it can be left out for batches that need none of their own.
//
// It keeps what survives a power loss a prefix of the commit sequence, also when not every commit is synced: within one
// log file by Badger's replay, which stops at the first entry that is not whole; across files because before a Txn that
// may make Badger begin a new file, everything in the old one is synced. Only one goroutine may write to the database for
// this to hold: nothing but the writer does, and a value log collector, the only other source of Txns in Badger, has
// nothing to do here (chunk.go).
type durable struct {
	dir   string
	limit int64 // Badger begins a new file when one of its two measures of the old reaches this
	off   bool  // Options.NoSync, or a store in memory
	fid   int   // the writer's, as are used and ready
	used  int64 // upper bound of both measures
	ready int64 // the file has its place on the disk up to here
	dirty atomic.Bool

	mu     sync.Mutex // held while the file is synced or changed for the next
	file   *os.File
	failed error // of a sync: the next one's success would say nothing about what this one was for
}

// What Badger adds to an entry: in the log file at most 21 bytes (header, version, checksum); in the memtable version,
// value header and a node, whose height is random: 36 on the average, 50 more than surely over many of them, and
// usedSlack covers the few.
const (
	usageOverhead    = 50
	usageTxnOverhead = 64 // the end marker, in the log file
	usedSlack        = 64 << 10
)

// usage bounds how much a Txn of so many entries, with keys and values of so many bytes, adds to either measure.
func usage(entries, bytes int) int64 {
	return int64(entries*usageOverhead + bytes + usageTxnOverhead)
}

// openDurable finds the active log file of a database that has just been opened.
func openDurable(b badger.Options, off bool) (*durable, error) {
	d := &durable{dir: b.Dir, limit: b.MemTableSize, used: usedSlack, off: off}
	if off {
		return d, nil
	}
	fids, err := logFiles(b.Dir)
	if err != nil || len(fids) == 0 {
		return nil, fmt.Errorf("%w: no log file in %s: %w", ErrDamaged, b.Dir, err)
	}
	for _, fid := range fids {
		d.fid = max(d.fid, fid)
	}
	return d, d.open()
}

func logFileName(dir string, fid int) string { return filepath.Join(dir, fmt.Sprintf("%05d.mem", fid)) }

// logFiles returns the numbers of the log files.
func logFiles(dir string) (fids []int, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var fid int
		if _, err := fmt.Sscanf(filepath.Base(name), "%05d.mem", &fid); err != nil {
			return nil, fmt.Errorf("store: log file %s: %w", name, err)
		}
		fids = append(fids, fid)
	}
	return fids, nil
}

func (d *durable) open() (err error) {
	d.ready = 0
	d.file, err = os.OpenFile(logFileName(d.dir, d.fid), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("store: open log file: %w", err)
	}
	return nil
}

// before prepares for a Txn: if it may go to a new file, the old one is made durable first.
func (d *durable) before() error {
	if d.used < d.limit {
		return nil
	}
	_, err := d.sync()
	return err
}

// after takes note of a Txn that Badger has written, and finds out which file it is in.
func (d *durable) after(n int64) error {
	if d.off {
		return nil
	}
	if err := d.follow(); err != nil {
		return err
	}
	d.used += n
	d.dirty.Store(true)
	d.prepare()
	return nil
}

// follow moves on to the next file if Badger has.
func (d *durable) follow() error {
	if _, err := os.Stat(logFileName(d.dir, d.fid+1)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if d.dirty.Load() { // used was no upper bound: what must not be
		return fmt.Errorf("store: log file %d was left before it was synced", d.fid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.file
	d.fid++
	d.used = usedSlack
	return errors.Join(d.open(), old.Close())
}

// sync makes everything durable that was committed before it was called. Any goroutine may call it, also while the writer
// goes on. It reports whether there was something to sync.
func (d *durable) sync() (synced bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil || !d.dirty.Swap(false) { // what comes from here on may miss this sync, and needs another
		return false, d.failed
	}
	if err := unix.Fdatasync(int(d.file.Fd())); err != nil {
		d.failed = fmt.Errorf("store: sync log file: %w", err)
	}
	return true, d.failed
}

// prepare gives the log file its place on the disk for what the next syncs are to write. A file that cannot have it is
// written all the same.
func (d *durable) prepare() {
	if d.ready >= d.used+aheadBytes/2 || d.ready >= d.limit {
		return
	}
	from := d.ready
	d.ready = min(d.used+aheadBytes, d.limit)
	if allocate(d.file, from, d.ready) != nil {
		d.ready = d.limit
	}
}

func (d *durable) close() error {
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

// syncLeft makes the log files durable that a process left behind: what Badger is about to replay and show must not be
// lost after all, while something newer survives.
func syncLeft(dir string) error {
	fids, err := logFiles(dir)
	if err != nil {
		return err
	}
	for _, fid := range fids {
		f, err := os.Open(logFileName(dir, fid))
		if err != nil {
			return fmt.Errorf("store: open log file: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("store: sync log file: %w", err)
		}
	}
	return nil
}
