package scale

import (
	"io/fs"
	"syscall"
)

// allocated returns the bytes of a file's blocks: Badger's log files are sparse.
func allocated(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return info.Size()
}
