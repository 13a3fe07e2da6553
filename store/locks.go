package store

import (
	"errors"
	"maps"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// A two-phase commit puts a lock on each of its cells and deletes it milliseconds later. Badger
// would keep both in a memtable, its log and a table until a compaction drops them, without
// a reader: leaders have their locks in memory. So the Writer also keeps new locks in memory,
// and drops those that are deleted before they had to be in Badger (docs/adr/0049). It writes
// the others (Writer.flush)
//
//   - before a checkpoint makes the state durable,
//   - before a Snap is opened that shows locks (Store.SnapWithLocks),
//   - when they become too many.
//
// After a crash each lock is what it would be without this. A lock that was only kept here was
// put by an entry after the checkpoint: a checkpoint copies the figures first, then writes all
// locks, then syncs, so it covers no Commit whose locks are only here. Applying the entry again
// puts it again. A lock that reappears although it was deleted is known from Open on, so the
// entry that deletes it, which is applied again, writes a tombstone.

// Limits of the locks kept in memory. The writer has admitted these bytes but has not written them
// when it measures the free space: they are as many as it writes between two measurements.
const (
	maxKeptLocks     = 1 << 15
	maxKeptLockBytes = spaceCheckBytes
)

// locks records which keys of the lock group have a value, and where. Writer.mu guards it.
type locks struct {
	kept  map[string]string   // by key: key and value of a lock that Badger does not have
	bytes int                 // bytes in kept, as Batch.Size counts them
	known map[string]struct{} // keys of the locks in Badger
}

func isLock(key []byte) bool { return len(key) > 0 && key[0] == byte(mvcc.GroupLock) }

// keep reports whether an operation need not be written to Badger now, because it puts a lock
// that is kept, or deletes one that was.
func (l *locks) keep(o *op) bool {
	entry, kept := l.kept[string(o.key)]
	if kept {
		delete(l.kept, string(o.key))
		l.bytes -= len(entry) + entryOverhead
		if o.del {
			return true
		}
	}
	_, known := l.known[string(o.key)]
	switch {
	case o.del:
		delete(l.known, string(o.key))
		return false
	case known:
		return false
	case chunksOf(len(o.value)) > 1: // too long to keep in memory: Badger gets it
		l.known[string(o.key)] = struct{}{}
		return false
	}
	entry = string(o.key) + string(o.value) // one allocation
	l.kept[entry[:len(o.key)]] = entry
	l.bytes += len(entry) + entryOverhead
	return true
}

// full reports whether the kept locks must be written.
func (l *locks) full() bool { return len(l.kept) > maxKeptLocks || l.bytes > maxKeptLockBytes }

// findLocks records which locks Badger has. Open calls it.
func (d *database) findLocks() (fault error) {
	l := &d.writer.locks
	l.kept, l.known = map[string]string{}, map[string]struct{}{}
	snap := d.snap()
	defer snap.Close()
	snap.lockless = nil
	snap.walk(walkOptions{prefix: []byte{byte(mvcc.GroupLock)}, keysOnly: true},
		func(key, _ []byte, err error) bool {
			if fault = err; err != nil {
				return false
			}
			l.known[string(key)] = struct{}{}
			return true
		})
	return fault
}

// flush writes the kept locks to Badger.
func (w *Writer) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *Writer) flushLocked() error {
	if len(w.locks.kept) == 0 {
		return nil
	}
	// After ErrClosed, Close's last checkpoint still writes.
	if w.failed != nil && !errors.Is(w.failed, ErrClosed) {
		return w.failed
	}
	// Sorted, to make simulations deterministic.
	keys := slices.Sorted(maps.Keys(w.locks.kept))
	err := w.transact(len(keys), func() error {
		for _, key := range keys {
			o := op{key: []byte(key), value: []byte(w.locks.kept[key][len(key):])}
			if err := w.add(&o); err != nil {
				return err
			}
			w.locks.known[string(o.key)] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return w.failLocked(err)
	}
	clear(w.locks.kept)
	w.locks.bytes = 0
	w.finish()
	return nil
}

// SnapWithLocks is like Snap, for readers of locks. It waits for a Commit that is writing. If the
// locks cannot be written, reads of them from the Snap return the error.
func (s *Store) SnapWithLocks() *Snap {
	w := s.state.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.flushLocked()
	snap := s.state.snap()
	snap.lockless = err
	return snap
}

// errLockless is returned for a read of locks from a Snap that may lack some.
var errLockless = errors.New("store: this Snap may lack locks; read them from a SnapWithLocks")
