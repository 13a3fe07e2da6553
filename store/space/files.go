package space

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// files counts the memory maps of the process. An unknown count, without /proc, is treated as
// unlimited.
type files struct {
	mu      sync.Mutex
	maps    uint64        // memory maps of the process when last counted
	most    uint64        // vm.max_map_count at the last count; 0: unknown
	counted time.Time     // time of the last count
	pause   time.Duration // minimum time until the next count
	made    uint64        // tables begun since the last count, with one map each
}

// Counting memory maps costs about 1 µs each in the kernel. So they are counted at most once
// in mapsPause, and the pause is at least mapsShare times the duration of the count.
const (
	mapsPause = 500 * time.Millisecond
	mapsShare = 50
)

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

// IsShortage reports whether an error means that the process or the machine lacks a
// resource. Such an error is no evidence of damage to the file that could not be read.
func IsShortage(err error) bool {
	for _, e := range [...]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOSPC, unix.EDQUOT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
