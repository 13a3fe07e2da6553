package store

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/percolator-go/percolator/internal/version"
)

// The disk version in the directory's VERSION file, which determines the builds that may open
// it. The node raises it, on any goroutine, when its cluster has agreed on a later one and before
// it writes anything of that version. It never decreases.

// stamp is the content of VERSION.
type stamp struct {
	mu      sync.Mutex
	version version.Number
	log     [16]byte
}

// raisedFile is renamed to VERSION. Its name is not VERSION.new, which marks a store whose
// creation did not finish.
const raisedFile = "VERSION.raised"

// Version returns the directory's version. A store in memory starts with the oldest that the build
// supports.
func (s *Store) Version() version.Number {
	s.stamp.mu.Lock()
	defer s.stamp.mu.Unlock()
	return s.stamp.version
}

// RaiseVersion durably raises the directory's version: builds that do not support it refuse the
// directory from then on. An earlier version changes nothing.
func (s *Store) RaiseVersion(to version.Number) error {
	s.stamp.mu.Lock()
	defer s.stamp.mu.Unlock()
	if to <= s.stamp.version {
		return nil
	}
	if !s.opts.InMemory {
		if s.closed.Load() {
			return ErrClosed
		}
		if err := replaceFileBy(s.opts.Dir, versionFile, raisedFile,
			versionText(to, s.stamp.log)); err != nil {
			return err
		}
	}
	s.stamp.version = to
	return nil
}

// VersionError reports that the build does not support the directory's version.
type VersionError struct {
	Dir     string
	Have    string // version of the directory, such as "3"
	Release string // release that wrote the directory, such as "0.2.0"; empty if not recorded
	Knows   version.Range
}

// Error implements error.
func (e *VersionError) Error() string {
	writer := "such as the one that wrote it"
	if e.Release != "" {
		writer = "such as release " + e.Release + ", which wrote it"
	}
	text := fmt.Sprintf("store: %s has disk version %s, and this build supports %s; nothing in it was changed: "+
		"start it with a build that supports its version, %s", e.Dir, e.Have, e.Knows, writer)
	if have, err := strconv.Atoi(e.Have); err == nil && have < int(e.Knows.Oldest) {
		text += "; to move its data to this build, `percolator export` every table there, and `percolator load` the files " +
			"into an empty directory with this build"
	}
	return text
}
