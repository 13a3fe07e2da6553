// Package feedfile writes the changes of tables to files of JSON lines, each exactly once: for
// loading into a warehouse, for an archive, or as a template for other sinks that can be cut off
// at a position.
//
// A directory has one or more files. Each line is a percolator.Change in JSON: a change, or
// {"resolved": …}, which says that all changes up to it are before it. The position is in the files
// themselves: Follow cuts off what follows the last resolved line, which may be incomplete, and
// continues after that line. So a reader uses only what lies before the last resolved line, and
// finds every change there exactly once, those of a row in the order of their commits.
package feedfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	percolator "github.com/percolator-go/percolator"
)

// Config configures Follow. Zero fields mean the defaults.
type Config struct {
	// Dir is the directory of the files, which Follow creates. One process may write it.
	Dir string
	// Subscription, if not empty, is the name of a subscription that holds history while Follow does
	// not run. The files alone determine where it continues.
	Subscription string
	// FileBytes is the size from which on a new file is begun; default 64 MiB.
	FileBytes int64
	// SyncEvery is the time between two resolved lines, each of which is synced; default 1 s.
	SyncEvery time.Duration
}

// Follow appends the changes of the rows until ctx ends, and returns ctx's error then. With an empty
// directory it begins with all present cells. It returns percolator.ErrSnapshotTooOld if the
// changes after the last resolved line are no longer in the history: begin with an empty directory.
func Follow(ctx context.Context, db *percolator.DB, cfg Config, rows ...percolator.RowRange) (err error) {
	if cfg.FileBytes <= 0 {
		cfg.FileBytes = 64 << 20
	}
	if cfg.SyncEvery <= 0 {
		cfg.SyncEvery = time.Second
	}
	w := &writer{cfg: cfg}
	if err := w.open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.file.Close()) }()
	var sub *percolator.Subscription
	if cfg.Subscription != "" {
		if sub, err = db.Subscribe(ctx, cfg.Subscription); err != nil {
			return err
		}
	}
	for change, err := range db.Changes(ctx, w.position, rows...) {
		if err != nil {
			return err
		}
		if change.Resolved == 0 {
			if err := w.write(change); err != nil {
				return err
			}
			continue
		}
		// The initial state has one resolved timestamp, which ends it.
		if w.position != 0 && time.Since(w.synced) < cfg.SyncEvery {
			continue
		}
		if err := w.resolve(change); err != nil {
			return err
		}
		if sub != nil {
			if err := sub.Advance(ctx, change.Resolved); err != nil {
				return err
			}
		}
	}
	return nil
}

// writer appends to the newest file.
type writer struct {
	cfg      Config
	file     *os.File
	buffer   *bufio.Writer
	bytes    int64
	position percolator.Timestamp // the last resolved line; 0: none
	synced   time.Time
}

// Files returns the files of a directory, in the order of their changes.
func Files(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	slices.Sort(names)
	return names, err
}

// open opens the newest file and cuts off what follows its last resolved line.
func (w *writer) open() error {
	if err := os.MkdirAll(w.cfg.Dir, 0o755); err != nil {
		return err
	}
	names, err := Files(w.cfg.Dir)
	if err != nil {
		return err
	}
	for len(names) > 0 {
		name := names[len(names)-1]
		if w.position, w.bytes, err = lastResolved(name); err != nil {
			return err
		}
		if w.position != 0 {
			if w.file, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
				return err
			}
			if err := w.file.Truncate(w.bytes); err != nil {
				return err
			}
			if _, err := w.file.Seek(w.bytes, io.SeekStart); err != nil {
				return err
			}
			w.buffer = bufio.NewWriter(w.file)
			return nil
		}
		// Nothing in it is resolved: the file before has the position.
		if err := os.Remove(name); err != nil {
			return err
		}
		names = names[:len(names)-1]
	}
	return w.begin()
}

// begin creates the next file, named by its first position.
func (w *writer) begin() (err error) {
	name := filepath.Join(w.cfg.Dir, fmt.Sprintf("%020d.jsonl", w.position))
	if w.file, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644); err != nil {
		return err
	}
	w.buffer, w.bytes = bufio.NewWriter(w.file), 0
	dir, err := os.Open(w.cfg.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lastResolved returns the last complete resolved line of a file, and where it ends.
func lastResolved(name string) (position percolator.Timestamp, end int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	at, lines := int64(0), bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF { // the rest is incomplete
			return position, end, nil
		}
		if err != nil {
			return 0, 0, err
		}
		at += int64(len(line))
		if !bytes.Contains(line, []byte(`"resolved"`)) {
			continue
		}
		var c percolator.Change
		if err := json.Unmarshal(line, &c); err != nil {
			return 0, 0, fmt.Errorf("feedfile: %s is damaged before byte %d: %w", name, at, err)
		}
		if c.Resolved != 0 {
			position, end = c.Resolved, at
		}
	}
}

func (w *writer) write(c percolator.Change) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	n, err := w.buffer.Write(append(line, '\n'))
	w.bytes += int64(n)
	return err
}

// resolve writes a resolved line behind the synced changes, syncs it, and begins a new file if this
// one is large enough. A crash in between leaves the line before as the last one.
func (w *writer) resolve(c percolator.Change) error {
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.write(c); err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	w.position, w.synced = c.Resolved, time.Now()
	if w.bytes < w.cfg.FileBytes {
		return nil
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	return w.begin()
}

func (w *writer) sync() error {
	return errors.Join(w.buffer.Flush(), w.file.Sync())
}
