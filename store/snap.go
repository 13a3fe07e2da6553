package store

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Snap is the state at one sequence number: everything whose commit had returned when the
// Snap was opened, whole batches only, and nothing later. It serves the stored part of
// mvcc.View. One goroutine uses it at a time, also its iterators, and must end with
// Close, iterators first.
type Snap struct {
	d      *database
	txn    *badger.Txn
	seq    uint64
	key    []byte // reused from lookup to lookup
	closed bool
	stuck  bool // an iterator could not be made, and Badger would panic if the Txn were ended
}

// Snap opens a view of the state. It is cheap, but holds back the collection of what it
// can see until it is closed.
func (s *Store) Snap() *Snap { return s.state.snap() }

func (d *database) snap() *Snap {
	seq := d.seq.pin()
	return &Snap{d: d, txn: d.db.NewTransactionAt(seq, false), seq: seq}
}

// Close ends the Snap. Closing again does nothing.
func (s *Snap) Close() {
	if s.closed {
		return
	}
	s.closed = true
	if !s.stuck {
		s.txn.Discard()
	}
	s.d.seq.unpin(s.seq)
}

// get looks a key up.
func (s *Snap) get(key []byte) (item *badger.Item, err error) {
	if err := s.d.damage.err(); err != nil {
		return nil, err
	}
	defer s.d.unreadable(&err)
	return s.txn.Get(key)
}

// iterator begins a walk.
func (s *Snap) iterator(o badger.IteratorOptions) (it *badger.Iterator, err error) {
	if err := s.d.damage.err(); err != nil {
		return nil, err
	}
	s.stuck = true // Badger counts an iterator before it is made, and those that are not closed
	defer s.d.unreadable(&err)
	it = s.txn.NewIterator(o)
	s.stuck = false
	return it, nil
}

// unreadable turns a panic of Badger's into an error. A database that could not make a
// memtable, for want of file descriptors or of room, is left without one: the write that
// needed it has failed, and so has the writer, but Badger's reads take it for granted. Or
// a table is damaged.
func (d *database) unreadable(err *error) {
	if p := recover(); p != nil {
		d.suspect()
		*err = fmt.Errorf("%w: read: %v", ErrFailed, p)
	}
}

// Sequence is the number that the Snap reads at.
func (s *Snap) Sequence() uint64 { return s.seq }

// read looks a key up and passes its value to fn, which must copy what it keeps.
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
	if errors.Is(err, badger.ErrKeyNotFound) {
		if hot {
			s.d.hot.found(key, nil, true, s.seq, s.seq)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store: read: %w", err)
	}
	switch {
	case item.UserMeta() == chunkedMeta:
		fn = s.joined(key, fn)
	case hot:
		fn = s.keeping(item, key, fn)
	}
	return true, s.corrupt(key, item.Value(fn))
}

// corrupt is the error of a value that cannot be read.
func (s *Snap) corrupt(key []byte, err error) error {
	if err == nil {
		return nil
	}
	s.d.suspect()
	return fmt.Errorf("%w: key %q: %w", ErrCorrupt, key, err)
}

// keeping returns a function that passes the value on to fn, and leaves it for other
// Snaps if fn could read it.
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

// joined returns a function that gets the head of a long value and passes the whole on to fn.
func (s *Snap) joined(key []byte, fn func(value []byte) error) func([]byte) error {
	return func(head []byte) error {
		whole, err := s.joinChunks(key, head)
		if err != nil {
			return err
		}
		return fn(whole)
	}
}

// lookup is read for a cell's entry in group g.
func (s *Snap) lookup(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp,
	fn func(value []byte) error) (bool, error) {
	s.key = AppendKey(s.key[:0], g, c, ts)
	return s.read(s.key, fn)
}

// Newest implements mvcc.View.
func (s *Snap) Newest(c mvcc.Cell) (w mvcc.Write, ok bool, err error) {
	ok, err = s.lookup(mvcc.GroupWrite, c, 0, func(b []byte) (err error) {
		w, err = DecodeWrite(b)
		w.Value = clone(w.Value)
		return err
	})
	return w, ok, err
}

// Data implements mvcc.View.
func (s *Snap) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	v, _, ok, err := s.DataWithin(c, start, math.MaxInt)
	return v, ok, err
}

// DataWithin is Data for who has room for so many bytes. Of a value in several entries
// that takes more it tells the length n alone, with v nil: what can't be used is not put
// together.
func (s *Snap) DataWithin(c mvcc.Cell, start mvcc.Timestamp,
	room int) (v []byte, n int, ok bool, err error) {
	s.key = AppendKey(s.key[:0], mvcc.GroupData, c, start)
	item, err := s.get(s.key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("store: read: %w", err)
	}
	err = item.Value(func(b []byte) (err error) {
		if item.UserMeta() != chunkedMeta {
			v, err = decodePlain(b)
			v = clone(v)
			n = len(v)
			return err
		}
		if n, _, err = cutHead(b); err != nil || n > room {
			return err
		}
		if b, err = s.joinChunks(s.key, b); err == nil {
			v, err = decodePlain(b)
		}
		return err
	})
	return v, n, err == nil, s.corrupt(s.key, err)
}

// Raw implements mvcc.View.
func (s *Snap) Raw(c mvcc.Cell) ([]byte, bool, error) { return s.plain(mvcc.GroupRaw, c, 0) }

func (s *Snap) plain(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) (v []byte, ok bool, err error) {
	ok, err = s.lookup(g, c, ts, func(b []byte) (err error) {
		v, err = decodePlain(b)
		v = clone(v)
		return err
	})
	return v, ok, err
}

// RolledBack implements mvcc.View. It reads no value.
func (s *Snap) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	return s.has(mvcc.GroupRollback, c, start)
}

// Locked reports whether the cell has a lock on disk. It reads no value.
func (s *Snap) Locked(c mvcc.Cell) (bool, error) { return s.has(mvcc.GroupLock, c, 0) }

func (s *Snap) has(g mvcc.Group, c mvcc.Cell, ts mvcc.Timestamp) (bool, error) {
	s.key = AppendKey(s.key[:0], g, c, ts)
	_, err := s.get(s.key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store: read: %w", err)
	}
	return true, nil
}

// Notification implements mvcc.View.
func (s *Snap) Notification(c mvcc.Cell) (n mvcc.Notify, ok bool, err error) {
	ok, err = s.lookup(mvcc.GroupNotify, c, 0, func(b []byte) (err error) {
		n, err = DecodeNotify(b)
		return err
	})
	return n, ok, err
}

// Intent implements mvcc.View.
func (s *Snap) Intent(c mvcc.Cell, start mvcc.Timestamp) (i mvcc.Intent, ok bool, err error) {
	ok, err = s.lookup(mvcc.GroupIntent, c, start, func(b []byte) (err error) {
		i, err = DecodeIntent(b)
		return err
	})
	return i, ok, err
}

// Get returns a copy of a raw key's value: one that Batch.Put wrote, with no decoding.
func (s *Snap) Get(key []byte) (v []byte, ok bool, err error) {
	ok, err = s.read(key, func(b []byte) error {
		v = append([]byte{}, b...)
		return nil
	})
	return v, ok, err
}

// TabletState returns what Batch.PutTabletState last set.
func (s *Snap) TabletState(id uint64) (v []byte, ok bool, err error) {
	s.key = appendTabletKey(s.key[:0], id)
	ok, err = s.read(s.key, func(b []byte) (err error) {
		v, err = decodePlain(b)
		v = clone(v)
		return err
	})
	return v, ok, err
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
				w, err := DecodeWrite(value)
				w.Value = clone(w.Value)
				return yield(w, err) && err == nil
			})
	}
}
