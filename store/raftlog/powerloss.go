package raftlog

import (
	"errors"
	"slices"
)

// Simulated crashes of a log in memory, for tests of packages that use a log. The log's own tests
// cut the power of a simulated disk at every step (model_test.go). No node uses it.

// Reopen returns the log as it would be opened if the process ended now: with all writes, or, if
// powerFails, with those before each file's last sync. l remains usable, and the two share
// nothing. Any goroutine may call it.
func (l *Log) Reopen(powerFails bool) (*Log, error) {
	m, ok := l.fs.(*memFS)
	if !ok {
		return nil, errors.New("raftlog: the log is not in memory")
	}
	o := l.opts
	o.ID, o.Create, o.fs = l.id, false, m.copy(powerFails)
	return Open(l.dir, o)
}

// copy returns copies of the files in their present or synced state.
func (m *memFS) copy(syncedOnly bool) *memFS {
	m.mu.RLock()
	defer m.mu.RUnlock()
	to := newMemFS()
	for name, f := range m.files {
		to.files[name] = f.copy(syncedOnly)
	}
	return to
}

func (f *memoryFile) copy(syncedOnly bool) *memoryFile {
	f.mu.RLock()
	defer f.mu.RUnlock()
	to := &memoryFile{data: slices.Clone(f.data), bytes: f.bytes}
	if !syncedOnly {
		return to
	}
	for _, w := range slices.Backward(f.unsynced) {
		to.data = to.data[:w.end]
		copy(to.data[min(w.at, w.end):], w.old)
	}
	return to
}
