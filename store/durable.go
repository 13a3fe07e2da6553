package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
)

// durable syncs what a writer commits. Badger writes a Txn into the log file of its active memtable (NNNNN.mem), which
// is mapped into memory; durable copies what is new of it to a journal, and syncs that with fdatasync. That is one flush of the
// disk for each commit, where Badger's own SyncWrites makes two, and it can be left out for batches that need none of their own.
//
// It keeps what survives a power loss a prefix of the commit sequence, also when not every commit is synced: within one
// log file by Badger's replay, which stops at the first entry that is not whole; across files because before a Txn that
// may make Badger begin a new file, everything in the old one is in its journal. Only one goroutine may write to the database for
// this to hold: nothing but the writer does, and a value log collector, the only other source of Txns in Badger, has
// nothing to do here (chunk.go).
type durable struct {
	dir   string
	limit int64 // Badger begins a new file when one of its two measures of the old reaches this
	off   bool  // Options.NoSync, or a store in memory
	fid   int   // the writer's, as are used and read
	used  int64 // upper bound of both measures
	read  []byte
	end   atomic.Int64 // of the last Txn in the log file; written by the writer
	dirty atomic.Bool

	mu       sync.Mutex // held while the journal is synced or changed for the next
	file     *os.File   // Badger's log file
	journal  *journal   // its
	journals []*journal // all
	failed   error      // of a sync: the next one's success would say nothing about what this one was for
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
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func logFileName(dir string, fid int) string {
	return filepath.Join(dir, fmt.Sprintf("%05d%s", fid, logExt))
}

// logFiles returns the numbers of the log files.
func logFiles(dir string) (fids []int, err error) {
	names, err := filesOf(dir, logExt)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		fid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), logExt))
		if err != nil {
			return nil, fmt.Errorf("store: log file %s: %w", name, err)
		}
		fids = append(fids, fid)
	}
	return fids, nil
}

const logExt = ".mem"

// filesOf are the files of a directory whose names end so; none where there is no directory.
func filesOf(dir, ext string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("store: read directory: %w", err)
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ext {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// open turns to the log file fid, which Badger has just made: before anything is in its journal it is there for good. The
// caller holds mu, or is the only one.
func (d *durable) open() (err error) {
	d.end.Store(logHeadBytes)
	d.file, err = os.Open(logFileName(d.dir, d.fid))
	if err != nil {
		return fmt.Errorf("store: open log file: %w", err)
	}
	if err := unix.Fdatasync(int(d.file.Fd())); err != nil {
		return fmt.Errorf("store: sync log file: %w", err)
	}
	free, err := d.free()
	if err != nil {
		return err
	}
	// Also for what is gone: an older log file must not come back when its journal is written over.
	if err := syncDir(d.dir); err != nil {
		return err
	}
	d.journal = free
	return free.begin(d.fid, d.file)
}

// shrink gives back what the journals do not need now.
func (d *durable) shrink() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal == nil {
		return nil
	}
	var kept, done []*journal
	for _, j := range d.journals {
		if j != d.journal && d.done(j) {
			done = append(done, j)
		} else {
			kept = append(kept, j)
		}
	}
	d.journals = kept
	// The log files are gone for good before their journals are.
	if err := syncDir(d.dir); err != nil {
		return err
	}
	for _, j := range done {
		if err := errors.Join(j.file.Close(), os.Remove(j.file.Name())); err != nil {
			return fmt.Errorf("store: remove a journal: %w", err)
		}
	}
	return d.journal.shrink()
}

// done reports whether a journal's log file is gone: all of it is in tables.
func (d *durable) done(j *journal) bool {
	_, err := os.Stat(logFileName(d.dir, j.log))
	return errors.Is(err, fs.ErrNotExist)
}

// free is a journal that is done, or a new one, which is named after the first log file that it is for.
func (d *durable) free() (*journal, error) {
	for _, j := range d.journals {
		if d.done(j) {
			return j, nil
		}
	}
	f, err := os.OpenFile(filepath.Join(d.dir, fmt.Sprintf("%05d%s", d.fid, journalExt)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return nil, fmt.Errorf("store: make a journal: %w", err)
	}
	d.journals = append(d.journals, &journal{file: f})
	return d.journals[len(d.journals)-1], nil
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
	if err := d.measure(n); err != nil {
		return err
	}
	d.dirty.Store(true)
	return nil
}

// An entry of Badger's log file begins with two bytes of flags and the lengths of key and value and an expiry as varints, and
// ends with a CRC; zeros follow the last one. A Txn's last entry has a flag of its own.
const (
	entrySumBytes = 4
	finTxnFlag    = 1 << 7
)

// measure finds the end of a Txn that was written behind the last one and takes at most n bytes.
func (d *durable) measure(n int64) error {
	if int64(cap(d.read)) < n {
		d.read = make([]byte, n)
	}
	b, at, last := d.read[:n], d.end.Load(), byte(0)
	got, err := d.file.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("store: read log file %d: %w", d.fid, err)
	}
	b = b[:got]
	for size := entrySize(b); size > 0; size = entrySize(b) {
		last, b, at = b[0], b[size:], at+int64(size)
	}
	if last&finTxnFlag == 0 {
		return fmt.Errorf("store: log file %d: no end of a transaction at %d", d.fid, at)
	}
	d.end.Store(at)
	if cap(d.read) > keptRead {
		d.read = nil
	}
	return nil
}

// keptRead bounds what is kept to read the next Txn into.
const keptRead = 1 << 20

// entrySize is how many bytes the first entry takes; 0: there is none that is whole.
func entrySize(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	var lengths [3]uint64 // of key and value, and the expiry
	at := 2
	for i := range lengths {
		v, n := binary.Uvarint(b[at:])
		if n <= 0 {
			return 0
		}
		lengths[i], at = v, at+n
	}
	key, value := lengths[0], lengths[1]
	if size := uint64(at) + key + value + entrySumBytes; key > 0 && key <= uint64(len(b)) && value <= uint64(len(b)) && size <= uint64(len(b)) {
		return int(size)
	}
	return 0
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
	if err := d.journal.copy(d.file, d.end.Load()); err != nil {
		d.failed = err
	} else if err := unix.Fdatasync(int(d.journal.file.Fd())); err != nil {
		d.failed = fmt.Errorf("store: sync journal: %w", err)
	}
	return true, d.failed
}

func (d *durable) close() error {
	var errs []error
	if d.file != nil {
		errs = append(errs, d.file.Close())
	}
	for _, j := range d.journals {
		errs = append(errs, j.file.Close())
	}
	return errors.Join(errs...)
}

// mendLogs makes the log files that a process left behind ready for Badger: whole, and durable unless noSync.
func mendLogs(dir string, noSync bool) error {
	if err := restoreJournals(dir); err != nil {
		return err
	}
	if !noSync {
		if err := syncLeft(dir); err != nil {
			return err
		}
	}
	return removeJournals(dir)
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
