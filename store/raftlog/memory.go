package raftlog

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// memFS is a directory in memory. Its files record the writes since their last sync, to simulate
// a power loss (powerloss.go). Names need no sync.
type memFS struct {
	mu    sync.RWMutex
	files map[string]*memoryFile
}

func newMemFS() *memFS { return &memFS{files: map[string]*memoryFile{}} }

func (m *memFS) list() ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.files)), nil
}

func (m *memFS) create(name string) (file, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] != nil {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	f := &memoryFile{}
	m.files[name] = f
	return f, nil
}

func (m *memFS) open(name string) (file, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if f := m.files[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func (m *memFS) rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[from] == nil {
		return fmt.Errorf("%s: %w", from, fs.ErrNotExist)
	}
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *memFS) remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memFS) sync() error { return nil }

// memoryFile holds memory only for the written part. The rest reads as zeros.
type memoryFile struct {
	mu       sync.RWMutex
	data     []byte
	bytes    int64
	unsynced []overwritten // oldest first
}

// overwritten is the data that a write replaced.
type overwritten struct {
	at  int64
	old []byte
	end int64 // length of data before the write
}

func (f *memoryFile) ReadAt(b []byte, at int64) (n int, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if at < f.bytes {
		n = int(min(int64(len(b)), f.bytes-at))
		clear(b[:n])
		copy(b[:n], f.data[min(at, int64(len(f.data))):])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memoryFile) WriteAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := int64(len(f.data))
	old := slices.Clone(f.data[min(at, was):min(at+int64(len(b)), was)])
	f.unsynced = append(f.unsynced, overwritten{at: at, old: old, end: was})
	if end := at + int64(len(b)); end > int64(len(f.data)) {
		f.data = append(f.data, make([]byte, end-int64(len(f.data)))...)
	}
	f.bytes = max(f.bytes, int64(len(f.data)))
	return copy(f.data[at:], b), nil
}

func (f *memoryFile) size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.bytes, nil
}

func (f *memoryFile) reserve(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes = max(f.bytes, size)
	return nil
}

func (f *memoryFile) truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.data, f.bytes = f.data[:min(size, int64(len(f.data)))], size
	f.unsynced = nil // callers sync a truncation before they rely on it
	return nil
}

func (f *memoryFile) sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsynced = nil
	return nil
}

func (f *memoryFile) close() error { return nil }
