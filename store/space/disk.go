package space

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// MinFreeFiles is the number of files, that is of free inodes, file descriptors and memory maps,
// below which WriteBlocked refuses; commits are refused below a quarter of it, and compactions
// wait below an eighth. It has room for the files of several compactions that end after writes were
// refused.
const MinFreeFiles = 512

// ReserveDivisor determines the reserve, MinFreeBytes/ReserveDivisor, below which commits are
// refused. Between MinFreeBytes and one and a half times the reserve, work that finishes or cleans
// up may still begin; below that nothing begins (Exhausted), and the bytes down to the reserve are
// for work that has begun by then.
const ReserveDivisor = 4

// Options configure a Disk.
type Options struct {
	Dirs         []string // directories of the files; each may be on a file system of its own
	InMemory     bool     // there are no files
	MinFreeBytes uint64   // watermark of the free bytes
	Logger       *slog.Logger

	// FreeBytes returns the free disk space, for tests. Defaults to that of the file system.
	FreeBytes func() (uint64, error)
}

// Disk compares the free resources of the file systems and of the process with the watermarks.
// Look does so; WriteBlocked and Exhausted return its last result.
type Disk struct {
	opts      Options
	files     files
	blocked   atomic.Pointer[ShortError] // what was below its watermark at the last Look; or nil
	exhausted atomic.Pointer[ShortError] // see Exhausted
}

// New returns a Disk that has not looked yet.
func New(o Options) *Disk { return &Disk{opts: o} }

// FreeBytes returns the free bytes of the file systems for this process: the smallest number of
// all. A store in memory has no limit.
func (d *Disk) FreeBytes() (uint64, error) {
	bytes, err := d.freeBytes()
	return bytes.free, err
}

// freeBytes returns the free bytes of the file system with the fewest. After an error they are
// those of the directory that could not be read, 0.
func (d *Disk) freeBytes() (amount, error) {
	least := amount{what: Bytes, free: math.MaxUint64, watermark: d.opts.MinFreeBytes}
	for _, dir := range d.opts.Dirs {
		free, err := d.FreeBytesOf(dir)
		if free < least.free || least.dir == "" {
			least.dir, least.free = dir, free
		}
		if err != nil {
			return least, err
		}
	}
	return least, nil
}

// FreeBytesOf returns the free bytes of the file system of a directory.
func (d *Disk) FreeBytesOf(dir string) (uint64, error) {
	if d.opts.FreeBytes != nil {
		return d.opts.FreeBytes()
	}
	if d.opts.InMemory {
		return math.MaxUint64, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("store: free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// amounts returns the free inodes of the file systems and the free file descriptors and memory maps
// of the process. An unknown amount, without /proc or on a file system that allocates inodes on
// demand, is omitted.
func (d *Disk) amounts() (all []amount) {
	if d.opts.InMemory {
		return nil
	}
	for _, dir := range d.opts.Dirs {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Files > 0 {
			all = append(all, amount{what: Inodes, dir: dir, free: st.Ffree})
		}
	}
	if open, limit, ok := descriptors(); ok {
		all = append(all, amount{what: Descriptors, free: limit - min(open, limit), limit: limit})
	}
	if free, most := d.files.freeMaps(time.Now()); most > 0 {
		all = append(all, amount{what: Maps, free: free, limit: most})
	}
	for i := range all {
		all[i].watermark = MinFreeFiles
	}
	return all
}

// FreeFiles returns, for each resource, the number of files that can still be created; Inodes
// are those of the file system with the fewest. Unlimited and unknown resources are omitted.
func (d *Disk) FreeFiles() map[Resource]uint64 {
	free := map[Resource]uint64{}
	for _, a := range d.amounts() {
		if n, known := free[a.what]; !known || a.free < n {
			free[a.what] = a.free
		}
	}
	return free
}

// WriteBlocked returns a *ShortError while the free space is below MinFreeBytes, or fewer than
// MinFreeFiles files can be created: the caller should refuse new writes but still complete and
// clean up those in progress. It costs one atomic load.
func (d *Disk) WriteBlocked() error { return asError(d.blocked.Load()) }

// Exhausted returns a *ShortError while so little is free that commits are about to be refused: the
// caller should accept nothing new, not even completions and cleanup, so that accepted work can
// still be written. It costs one atomic load.
func (d *Disk) Exhausted() error { return asError(d.exhausted.Load()) }

// asError returns nil for a nil pointer.
func asError(short *ShortError) error {
	if short == nil {
		return nil
	}
	return short
}

// Reserve returns the number of free bytes that commits do not use.
func (d *Disk) Reserve() uint64 { return d.opts.MinFreeBytes / ReserveDivisor }

// Room returns a *ShortError unless the store can grow by so many bytes and stay above every
// watermark. It makes system calls; it is for bulk writes that can wait.
func (d *Disk) Room(bytes uint64) error {
	least := d.look()
	if err := d.ShortOfFiles(1); err != nil {
		return err
	}
	return asError(least.short(least.watermark + bytes))
}

// RoomInReserve looks, and returns a *ShortError if n more bytes would use part of the reserve, or
// if a memtable or table might not be able to create its file.
func (d *Disk) RoomInReserve(n uint64) error {
	bytes := d.look()
	if short := bytes.short(d.Reserve() + n); short != nil {
		return short
	}
	return d.ShortOfFiles(ReserveDivisor)
}

// ShortOfFiles returns a *ShortError if fewer than MinFreeFiles/divisor files can be created.
func (d *Disk) ShortOfFiles(divisor uint64) error {
	for _, a := range d.amounts() {
		if short := a.short(a.watermark / divisor); short != nil {
			return short
		}
	}
	return nil
}

// RoomForTables returns a *ShortError unless so many tables can be created without using the
// reserve of files.
func (d *Disk) RoomForTables(tables uint64) error {
	for _, a := range d.amounts() {
		if short := a.short(tables + MinFreeFiles/ReserveDivisor); short != nil {
			return short
		}
	}
	return nil
}

// filesBesides is the approximate number of files of an open store other than its tables:
// memtables, the manifest, directories, segments of the log.
const filesBesides = 32

// RoomToOpen returns a *ShortError if opening so many existing tables would use part of the reserve
// of files. The Least of the error is the number at which writes are accepted too.
func (d *Disk) RoomToOpen(tables uint64) error {
	for _, a := range d.amounts() {
		need := tables + filesBesides
		if a.what == Inodes {
			need = filesBesides // opening an existing table takes no inode
		}
		if a.short(need+MinFreeFiles/ReserveDivisor) != nil {
			return a.short(need + MinFreeFiles)
		}
	}
	return nil
}

// CountNewTable counts a table that is about to be created, until memory maps are counted again.
func (d *Disk) CountNewTable() { d.files.countNewTable() }

// CountAgain lets the next check count memory maps, however recent the last count is. For tests.
func (d *Disk) CountAgain() {
	d.files.mu.Lock()
	defer d.files.mu.Unlock()
	d.files.pause = 0
}

// Look compares the free resources with the watermarks.
func (d *Disk) Look() { d.look() }

// look is Look, and returns the free bytes. If they cannot be read the disk counts as full.
func (d *Disk) look() amount {
	bytes, err := d.freeBytes()
	if err != nil {
		d.opts.Logger.Warn("store: cannot read the free space", "error", err)
	}
	var blocked, exhausted *ShortError
	for _, a := range append(d.amounts(), bytes) {
		reserve := a.watermark / ReserveDivisor
		blocked = cmp.Or(blocked, a.short(a.watermark))
		exhausted = cmp.Or(exhausted, a.short(reserve+reserve/2))
	}
	d.exhausted.Store(exhausted)
	switch was := d.blocked.Swap(blocked); {
	case blocked != nil && was == nil:
		d.opts.Logger.Warn("store: writes are refused", "error", blocked)
	case was != nil && blocked == nil:
		d.opts.Logger.Info("store: writes are accepted again", "free", bytes.free)
	}
	return bytes
}
