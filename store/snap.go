package store

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Snap is the state at one sequence number: all batches whose commits had returned when the
// Snap was opened, and nothing later. It implements the stored part of mvcc.View. Only one
// goroutine at a time may use a Snap and its iterators. Iterators must end before Close.
type Snap struct {
	d      *database
	txn    *badger.Txn
	seq    uint64
	key    []byte // reused from lookup to lookup
	closed bool
	// lockless is the error of reading locks from this Snap; nil if it contains all locks.
	lockless error
	stuck    bool // creating an iterator panicked, and ending the Txn would panic too
	ascent   ascent
}

// Snap opens a view of the state without its locks; readers of locks call SnapWithLocks. It
// is cheap, but versions that it can see are not collected until it is closed.
func (s *Store) Snap() *Snap { return s.state.snap() }

func (d *database) snap() *Snap {
	seq := d.seq.pin()
	return &Snap{d: d, txn: d.db.NewTransactionAt(seq, false), seq: seq, lockless: errLockless}
}

// Close ends the Snap. Closing again does nothing.
func (s *Snap) Close() {
	if s.closed {
		return
	}
	s.closed = true
	if !s.stuck {
		s.endAscent()
		s.txn.Discard()
	}
	s.d.seq.unpin(s.seq)
}

// get returns the entry of a key, or nil.
func (s *Snap) get(key []byte) (item *badger.Item, err error) {
	if err := s.d.damage.err(); err != nil {
		return nil, err
	}
	if s.lockless != nil && isLock(key) {
		return nil, s.lockless
	}
	defer s.d.unreadable(&err)
	if item, known, err := s.ascend(key); known || err != nil {
		return item, err
	}
	item, err = s.txn.Get(key)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("store: read: %w", err)
	}
	return item, nil
}

// iterator returns an iterator over the Snap's entries, of all keys or of a prefix.
func (s *Snap) iterator(o badger.IteratorOptions) (it *badger.Iterator, err error) {
	if err := s.d.damage.err(); err != nil {
		return nil, err
	}
	if s.lockless != nil && (len(o.Prefix) == 0 || isLock(o.Prefix)) {
		return nil, s.lockless
	}
	s.stuck = true // if creating it panics, Badger has counted it and misses its Close
	defer s.d.unreadable(&err)
	it = s.txn.NewIterator(o)
	s.stuck = false
	return it, nil
}

// unreadable converts a panic of Badger into an error. One cause is a damaged table. Another is
// a missing memtable, which Badger could not create without file descriptors or space: the
// write that needed it failed, and the writer with it, but Badger's reads rely on it.
func (d *database) unreadable(err *error) {
	if p := recover(); p != nil {
		d.suspect()
		*err = fmt.Errorf("%w: read: %v", ErrFailed, p)
	}
}

// Sequence returns the sequence number at which the Snap reads.
func (s *Snap) Sequence() uint64 { return s.seq }

// read passes the value of a key to fn, which must copy what it keeps, and reports whether the key
// exists. It reads hot cells from the cache and stores its findings there.
func (s *Snap) read(key []byte, fn func(value []byte) error) (bool, error) {
	hot := isHot(key)
	if hot {
		if err := s.d.damage.err(); err != nil {
			return false, err
		}
		if known, ok, err := s.d.hot.lookup(key, s.seq, fn); known {
			return ok, s.corrupt(key, err)
		}
	}
	item, err := s.get(key)
	if err != nil {
		return false, err
	}
	if item == nil {
		if hot {
			s.d.hot.found(key, nil, true, s.seq, s.seq)
		}
		return false, nil
	}
	if hot && item.UserMeta() != chunkedMeta {
		fn = s.keeping(item, key, fn)
	}
	return true, s.corrupt(key, s.value(item, key, fn))
}

// value passes the whole value of the key's entry to fn, which must copy what it keeps.
func (s *Snap) value(item *badger.Item, key []byte, fn func(value []byte) error) error {
	if item.UserMeta() != chunkedMeta {
		return item.Value(fn)
	}
	return item.Value(func(head []byte) error {
		whole, err := s.joinChunks(key, head)
		if err != nil {
			return err
		}
		return fn(whole)
	})
}

// errKeyLength reports a key that is shorter or longer than all keys of its kind.
var errKeyLength = errors.New("the key has a wrong length")

// corrupt returns the error of an entry that cannot be decoded, and calls suspect; nil if err is
// nil.
func (s *Snap) corrupt(key []byte, err error) error {
	if err == nil {
		return nil
	}
	s.d.suspect()
	return fmt.Errorf("%w: key %q: %w", ErrCorrupt, key, err)
}

// keeping returns a function that passes the value to fn and, if fn succeeds, caches it for
// other Snaps.
func (s *Snap) keeping(item *badger.Item, key []byte,
	fn func(value []byte) error) func([]byte) error {
	return func(value []byte) error {
		err := fn(value)
		if err == nil {
			s.d.hot.found(key, value, false, item.Version(), s.seq)
		}
		return err
	}
}

// lookup reads and decodes the value of a key. decode must copy what it keeps.
func lookup[T any](s *Snap, key []byte, decode func(value []byte) (T, error)) (v T, ok bool,
	err error) {
	ok, err = s.read(key, func(b []byte) (err error) {
		v, err = decode(b)
		return err
	})
	return v, ok, err
}

// cellKey returns the key of a cell's entry in group g. The next lookup overwrites it.
func (s *Snap) cellKey(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) []byte {
	s.key = AppendKey(s.key[:0], g, c, ts)
	return s.key
}

// Newest implements mvcc.View.
func (s *Snap) Newest(c mvcc.Cell) (mvcc.Write, bool, error) {
	return lookup(s, s.cellKey(mvcc.GroupWrite, c, 0), copyWrite)
}

// Data implements mvcc.View.
func (s *Snap) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	v, _, ok, err := s.DataWithin(c, start, math.MaxInt)
	return v, ok, err
}

// DataWithin returns the value of the cell with the start timestamp. Of a chunked value that takes
// more than room bytes, its tag included, it returns only their number n and a nil v.
func (s *Snap) DataWithin(c mvcc.Cell, start mvcc.Timestamp,
	room int) (v []byte, n int, ok bool, err error) {
	key := s.cellKey(mvcc.GroupData, c, start)
	item, err := s.get(key)
	if err != nil || item == nil {
		return nil, 0, false, err
	}
	err = item.Value(func(b []byte) (err error) {
		if item.UserMeta() != chunkedMeta {
			v, err = copyPlain(b)
			n = len(v)
			return err
		}
		if n, _, err = cutHead(b); err != nil || n > room {
			return err
		}
		if b, err = s.joinChunks(key, b); err == nil {
			v, err = DecodePlain(b)
		}
		return err
	})
	return v, n, err == nil, s.corrupt(key, err)
}

// Raw implements mvcc.View.
func (s *Snap) Raw(c mvcc.Cell) ([]byte, bool, error) {
	return lookup(s, s.cellKey(mvcc.GroupRaw, c, 0), copyPlain)
}

// PastLock implements mvcc.View.
func (s *Snap) PastLock(c mvcc.Cell, from mvcc.Timestamp) (mvcc.Write, bool, error) {
	w, ok, err := lookup(s, s.cellKey(mvcc.GroupLocked, c, 0), copyWrite)
	return w, ok && w.CommitTS >= from, err
}

// PastLocks reports whether the rows in the span have entries in K.
func (s *Snap) PastLocks(span mvcc.Span) (bool, error) {
	for _, err := range s.Keys(mvcc.GroupLocked, span, nil) {
		return err == nil, err
	}
	return false, nil
}

// RolledBack implements mvcc.View. It reads no value.
func (s *Snap) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	item, err := s.get(s.cellKey(mvcc.GroupRollback, c, start))
	return item != nil, err
}

// Locked reports whether the cell has a lock on disk. It reads no value.
func (s *Snap) Locked(c mvcc.Cell) (bool, error) {
	item, err := s.get(s.cellKey(mvcc.GroupLock, c, 0))
	return item != nil, err
}

// Notification implements mvcc.View.
func (s *Snap) Notification(c mvcc.Cell) (mvcc.Notify, bool, error) {
	return lookup(s, s.cellKey(mvcc.GroupNotify, c, 0), DecodeNotify)
}

// Intent implements mvcc.View.
func (s *Snap) Intent(c mvcc.Cell, start mvcc.Timestamp) (mvcc.Intent, bool, error) {
	return lookup(s, s.cellKey(mvcc.GroupIntent, c, start), DecodeIntent)
}

// Get returns a copy of a key's value as Batch.Put wrote it.
func (s *Snap) Get(key []byte) ([]byte, bool, error) {
	return lookup(s, key, func(b []byte) ([]byte, error) { return bytes.Clone(b), nil })
}

// TabletState returns the value last set by Batch.PutTabletState.
func (s *Snap) TabletState(tablet uint64) ([]byte, bool, error) {
	return lookup(s, s.ownKey(tabletPrefix, tablet), copyPlain)
}

// ownKey returns the key of a tablet's own record. The next lookup overwrites it.
func (s *Snap) ownKey(prefix byte, tablet uint64) []byte {
	s.key = appendOwnKey(s.key[:0], prefix, tablet)
	return s.key
}

// Older implements mvcc.View.
func (s *Snap) Older(c mvcc.Cell, atOrBelow mvcc.Timestamp) iter.Seq2[mvcc.Write, error] {
	return func(yield func(mvcc.Write, error) bool) {
		seek := AppendKey(make([]byte, 0, c.KeyBytes()), mvcc.GroupHistory, c, atOrBelow)
		s.walk(walkOptions{prefix: seek[:len(seek)-tsBytes], seek: seek},
			func(_, value []byte, err error) bool {
				if err != nil {
					return yield(mvcc.Write{}, err)
				}
				w, err := copyWrite(value)
				return yield(w, err) && err == nil
			})
	}
}
