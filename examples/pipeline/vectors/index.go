package vectors

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Entry is an entry of the index or, if Gone, a tombstone.
type Entry struct {
	ID      string    `json:"id"`
	Version uint64    `json:"version"` // increases with each change of the ID
	Gone    bool      `json:"gone,omitempty"`
	Text    string    `json:"text,omitempty"`
	Vector  []float32 `json:"vector,omitempty"`
}

// Change is a new version of an entry.
type Change struct {
	Entry

	// ReadAt is the timestamp of the snapshot from which the entry was read. A tombstone needs none.
	ReadAt uint64 `json:"read_at,omitempty"`
}

// ErrStale is returned by Apply for a change that was read before the last Drop's horizon.
var ErrStale = errors.New("vectors: the change was read before the horizon; read it again")

// line is a line of the file: an entry or a horizon.
type line struct {
	*Entry

	Horizon uint64 `json:"horizon,omitempty"`
}

// Index is a vector index in a file. Its methods are safe for concurrent use.
type Index struct {
	path string

	mu      sync.Mutex
	file    *os.File // opened for appending
	lines   int      // of file
	failed  error    // of file
	entries map[string]Entry
	horizon uint64
}

// Open opens the index in the file, and creates it if it does not exist.
func Open(path string) (*Index, error) {
	x := &Index{path: path, entries: map[string]Entry{}}
	if err := x.load(); err != nil {
		return nil, fmt.Errorf("vectors: read %s: %w", path, err)
	}
	if err := x.rewrite(); err != nil {
		return nil, err
	}
	return x, nil
}

// Close closes the file.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = os.ErrClosed
	}
	return x.file.Close()
}

// Apply stores the changes that are newer than the stored versions. They are durable when it returns
// nil. If a change is stale, it stores none and returns ErrStale.
func (x *Index) Apply(changes []Change) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	var lines []line
	for _, c := range changes {
		if !c.Gone && c.ReadAt < x.horizon {
			return ErrStale
		}
		if c.Version > x.entries[c.ID].Version {
			lines = append(lines, line{Entry: &c.Entry})
		}
	}
	return x.write(lines)
}

// Drop drops the tombstones whose version is less than horizon, and makes Apply refuse changes that
// were read before it. A horizon that is not greater than the last one has no effect.
func (x *Index) Drop(horizon uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if horizon <= x.horizon {
		return nil
	}
	if err := x.write([]line{{Horizon: horizon}}); err != nil {
		return err
	}
	if x.lines < 2*len(x.entries)+1000 {
		return nil
	}
	if err := x.file.Close(); err != nil {
		x.failed = err
		return err
	}
	x.failed = x.rewrite()
	return x.failed
}

// Entries returns all entries and tombstones, ordered by ID.
func (x *Index) Entries() []Entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]Entry, 0, len(x.entries))
	for _, e := range x.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Hit is a result of Search.
type Hit struct {
	ID    string  `json:"id"`
	Text  string  `json:"text"`
	Score float32 `json:"score"` // cosine
}

// Search returns the count entries nearest to the vector, the nearest first. It compares with all.
func (x *Index) Search(vector []float32, count int) []Hit {
	var hits []Hit
	for _, e := range x.Entries() {
		if e.Gone || len(e.Vector) != len(vector) {
			continue
		}
		h := Hit{ID: e.ID, Text: e.Text}
		for i, v := range e.Vector {
			h.Score += v * vector[i]
		}
		hits = append(hits, h)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.Score, a.Score) })
	return hits[:min(len(hits), max(count, 0))]
}

// write appends the lines, syncs the file, and then changes the entries.
func (x *Index) write(lines []line) error {
	if x.failed != nil {
		return fmt.Errorf("vectors: an earlier write failed; restart the index: %w", x.failed)
	}
	if len(lines) == 0 {
		return nil
	}
	w := bufio.NewWriter(x.file)
	if x.failed = errors.Join(encode(w, lines), w.Flush(), x.file.Sync()); x.failed != nil {
		return x.failed
	}
	x.lines += len(lines)
	for _, l := range lines {
		x.set(l)
	}
	return nil
}

func encode(w io.Writer, lines []line) error {
	e := json.NewEncoder(w)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// set applies a line of the file to the entries.
func (x *Index) set(l line) {
	if l.Entry != nil {
		x.entries[l.ID] = *l.Entry
	}
	if l.Horizon == 0 {
		return
	}
	x.horizon = l.Horizon
	for id, e := range x.entries {
		if e.Gone && e.Version < l.Horizon {
			delete(x.entries, id)
		}
	}
}

// load reads the file up to an unfinished line.
func (x *Index) load() error {
	file, err := os.Open(x.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	for d := json.NewDecoder(file); ; {
		var l line
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		x.set(l)
	}
}

// rewrite replaces the file by one with only the current state, and opens it.
func (x *Index) rewrite() (err error) {
	lines := make([]line, 0, len(x.entries)+1)
	for _, e := range x.entries {
		lines = append(lines, line{Entry: &e})
	}
	if x.horizon > 0 {
		lines = append(lines, line{Horizon: x.horizon})
	}
	file, err := os.Create(x.path + ".new")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	w := bufio.NewWriter(file)
	if err := errors.Join(encode(w, lines), w.Flush(), file.Sync()); err != nil {
		return err
	}
	if err := os.Rename(x.path+".new", x.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(x.path))
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return err
	}
	x.file, x.lines = file, len(lines)
	return nil
}
