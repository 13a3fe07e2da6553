package space

import (
	"errors"
	"fmt"
)

// ErrDiskFull reports that free space, or another resource that files need (ShortError),
// is below the watermark. It can be retried once space is free.
var ErrDiskFull = errors.New("store: free disk space is below the watermark, or another resource for files is short: " +
	"free some, or provide more")

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
