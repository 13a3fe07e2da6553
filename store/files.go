package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Watermarks of inodes, file descriptors and memory maps. Every table, memtable and log
// segment is a file, which needs an inode, a file descriptor and, in Badger, a memory map.
// Badger loses a table without an error if it cannot create its file (docs/adr/0056). So all
// three have watermarks like free bytes (space.go), and compactions wait while too few are
// free (gate.go).

// Resource names a resource that files need.
type Resource string

// The resources.
const (
	Bytes       Resource = "bytes"
	Inodes      Resource = "inodes"
	Descriptors Resource = "file descriptors"
	Maps        Resource = "memory maps"
)

// ShortError reports that too little of a resource is free. It is ErrDiskFull for every
// resource, because the consequences are the same.
type ShortError struct {
	What  Resource
	Dir   string // on the file system that is short, for Bytes and Inodes
	Free  uint64
	Least uint64 // the number that must be free
	Limit uint64 // limit of the process, for Descriptors and Maps
}

// Error implements error.
func (e *ShortError) Error() string {
	switch e.What {
	case Inodes:
		return fmt.Sprintf("store: %d inodes are free on the file system of %s, %d must be: "+
			"delete files there, or move the directory to a file system with more inodes",
			e.Free, e.Dir, e.Least)
	case Descriptors:
		return fmt.Sprintf("store: %d of %d file descriptors are free, %d must be: raise the limit "+
			"(ulimit -n, LimitNOFILE) to %d or more and restart", e.Free, e.Limit, e.Least,
			e.Limit+e.Least-e.Free)
	case Maps:
		return fmt.Sprintf("store: %d of %d memory maps are free, %d must be: "+
			"sysctl -w vm.max_map_count=%d, or more", e.Free, e.Limit, e.Least,
			e.Limit+e.Least-e.Free)
	default:
		return fmt.Sprintf("store: free disk space is below the watermark: free some, or grow the disk "+
			"(%d bytes must be free on the file system of %s, %d are)", e.Least, e.Dir, e.Free)
	}
}

// Is implements errors.Is.
func (e *ShortError) Is(target error) bool { return target == ErrDiskFull }

// amount is the free amount of a resource.
type amount struct {
	what      Resource
	dir       string
	free      uint64
	limit     uint64
	watermark uint64
}

// short returns a *ShortError if less than least is free.
func (a *amount) short(least uint64) *ShortError {
	if a.free >= least {
		return nil
	}
	return &ShortError{What: a.what, Dir: a.dir, Free: a.free, Least: least, Limit: a.limit}
}

// files counts the free resources that a file needs. An unknown count, without /proc or on a
// file system that allocates inodes on demand, is treated as unlimited.
type files struct {
	mu      sync.Mutex
	maps    uint64        // memory maps of the process when last counted
	most    uint64        // vm.max_map_count at that time; 0: unknown
	counted time.Time     // time of that count
	pause   time.Duration // minimum time until the next count
	made    uint64        // tables started since
}

// Counting memory maps costs about 1 µs each in the kernel. So they are counted at most once
// in mapsPause, and the pause is at least mapsShare times the duration of the count.
const (
	mapsPause = 500 * time.Millisecond
	mapsShare = 50
)

// amounts returns the free inodes of the store's file systems and the free file descriptors and
// memory maps of the process.
func (o Options) amounts(f *files) (all []amount) {
	if o.InMemory {
		return nil
	}
	dirs := []string{o.Dir}
	if o.LogDir != "" {
		dirs = append(dirs, o.LogDir)
	}
	for _, dir := range dirs {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Files > 0 {
			all = append(all, amount{what: Inodes, dir: dir, free: st.Ffree})
		}
	}
	if open, limit, ok := descriptors(); ok {
		all = append(all, amount{what: Descriptors, free: limit - min(open, limit), limit: limit})
	}
	if free, most := f.freeMaps(time.Now()); most > 0 {
		all = append(all, amount{what: Maps, free: free, limit: most})
	}
	for i := range all {
		all[i].watermark = MinFreeFiles
	}
	return all
}

// descriptors returns the number of open file descriptors of the process, and its limit.
func descriptors() (open, limit uint64, ok bool) {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 0, 0, false
	}
	const dir = "/proc/self/fd"
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, false
	}
	if n := info.Size(); n > 0 { // from Linux 6.2 on
		return uint64(n), lim.Cur, true
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		return lim.Cur, lim.Cur, true
	case err != nil:
		return 0, 0, false
	}
	return uint64(len(entries)), lim.Cur, true
}

// freeMaps returns the number of memory maps that the process may still create, and its limit;
// 0 if unknown.
func (f *files) freeMaps(now time.Time) (free, most uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counted.IsZero() || now.Sub(f.counted) >= f.pause {
		maps, limit, err := countMaps()
		if err == nil {
			f.maps, f.most, f.made = maps, limit, 0
		}
		f.counted = now
		f.pause = max(mapsPause, mapsShare*time.Since(now))
	}
	return f.most - min(f.maps+f.made, f.most), f.most
}

// countNewTable counts a table that is about to be created.
func (f *files) countNewTable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
}

// countMaps returns the number of the process's memory maps and the limit on it.
func countMaps() (maps, limit uint64, err error) {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return 0, 0, err
	}
	if limit, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return 0, 0, err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		maps += uint64(bytes.Count(buf[:n], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			return maps, limit, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// filesBesides is the approximate number of files of an open store other than its tables:
// memtables, the manifest, directories, segments of the log.
const filesBesides = 32

// checkFiles returns a *ShortError if opening the store's tables would leave less than
// Commit's reserve. The error contains the number at which writes are accepted too.
func (s *diskSpace) checkFiles() error {
	tables, err := filepath.Glob(filepath.Join(s.opts.Dir, stateDirName, "*"+tableExt))
	if err != nil {
		return err
	}
	need := uint64(len(tables)) + filesBesides
	for _, a := range s.opts.amounts(&s.files) {
		if a.what == Inodes {
			need = filesBesides // the existing tables have their inodes
		}
		if a.short(need+MinFreeFiles/reserveDivisor) != nil {
			return a.short(need + MinFreeFiles)
		}
		need = uint64(len(tables)) + filesBesides
	}
	return nil
}

// tableExt is the extension of tables' files.
const tableExt = ".sst"

// FreeFiles returns, for each resource, the number of files that can still be created; Inodes
// are those of the file system with the fewest. Unlimited and unknown resources are omitted.
func (s *diskSpace) FreeFiles() map[Resource]uint64 {
	free := map[Resource]uint64{}
	for _, a := range s.opts.amounts(&s.files) {
		if n, known := free[a.what]; !known || a.free < n {
			free[a.what] = a.free
		}
	}
	return free
}

// outOfResources reports whether an error means that the process or the machine lacks a
// resource. Such an error is no evidence of damage to the file that could not be read.
func outOfResources(err error) bool {
	for _, e := range [...]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
