package store

// Range reads of a Snap. In this file all of them use walk, which joins the chunks of long values
// and passes every failure as an error in its last call.

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/dgraph-io/badger/v4"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// CellLock is a cell with its lock on disk.
type CellLock struct {
	Cell mvcc.Cell
	Lock mvcc.Lock
}

// TabletStateEntry is one tablet's opaque state, tombstone or marker.
type TabletStateEntry struct {
	Tablet uint64
	State  []byte
}

// walkOptions describe a walk over the keys with the prefix. It begins at seek, or if seek is empty
// at the first key with the prefix, in reverse at the last. It ends before end if that is set. A
// reverse walk includes end.
type walkOptions struct {
	prefix, seek, end []byte
	reverse           bool
	keysOnly          bool // fn gets no values
}

// walk calls fn for each entry until it returns false. key and value are valid only during
// the call. An error is passed in the last call, with nothing else.
func (s *Snap) walk(o walkOptions, fn func(key, value []byte, err error) bool) {
	it, err := s.iterator(badger.IteratorOptions{Prefix: o.prefix, Reverse: o.reverse})
	if err != nil {
		fn(nil, nil, err)
		return
	}
	defer it.Close()
	seek := o.seek
	if len(seek) == 0 && o.reverse {
		seek = prefixEnd(o.prefix)
	}
	for it.Seek(seek); it.Valid(); it.Next() {
		item := it.Item()
		key := item.Key()
		if past(o, key) {
			return
		}
		if o.keysOnly {
			if !fn(key, nil, nil) {
				return
			}
			continue
		}
		more := false
		take := func(value []byte) error {
			more = fn(key, value, nil)
			return nil
		}
		if err := s.value(item, key, take); err != nil {
			fn(nil, nil, s.corrupt(key, err))
			return
		}
		if !more {
			return
		}
	}
}

// past reports whether the key is beyond the walk's end.
func past(o walkOptions, key []byte) bool {
	if o.end == nil {
		return false
	}
	if o.reverse {
		return bytes.Compare(key, o.end) < 0
	}
	return bytes.Compare(key, o.end) >= 0
}

// spanWalk returns the options that walk the span in a row-first group.
func spanWalk(g mvcc.Group, span mvcc.Span, reverse bool) walkOptions {
	o := walkOptions{prefix: appendTable(nil, g, span.Table), reverse: reverse}
	lower := appendRow(nil, g, span.Table, span.Start)
	upper := prefixEnd(o.prefix)
	if span.HasEnd {
		upper = appendRow(nil, g, span.Table, span.End)
	}
	if reverse {
		o.seek, o.end = upper, lower // no entry has exactly the key upper: a row's prefix is no key
	} else {
		o.seek, o.end = lower, upper
	}
	return o
}

// entries iterates over entries and decodes them. decode receives the cell and timestamp of each
// entry and its value, which it must copy.
func entries[T any](s *Snap, o walkOptions,
	decode func(c mvcc.Cell, ts mvcc.Timestamp, value []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		s.walk(o, func(key, value []byte, err error) bool {
			var v T
			if err == nil {
				var c mvcc.Cell
				var ts mvcc.Timestamp
				if _, c, ts, err = DecodeKey(key); err == nil {
					v, err = decode(c, ts, value)
				}
				err = s.corrupt(key, err)
			}
			return yield(v, err) && err == nil
		})
	}
}

// Cells implements mvcc.View.
func (s *Snap) Cells(span mvcc.Span, reverse bool) iter.Seq2[mvcc.CellWrite, error] {
	return entries(s, spanWalk(mvcc.GroupWrite, span, reverse),
		func(c mvcc.Cell, _ mvcc.Timestamp, value []byte) (mvcc.CellWrite, error) {
			w, err := copyWrite(value)
			return mvcc.CellWrite{Cell: c, Write: w}, err
		})
}

// DiskLocks iterates over the locks on disk with rows in span, by cell. A new leader loads its
// lock table with it.
func (s *Snap) DiskLocks(span mvcc.Span) iter.Seq2[CellLock, error] {
	return entries(s, spanWalk(mvcc.GroupLock, span, false),
		func(c mvcc.Cell, _ mvcc.Timestamp, value []byte) (CellLock, error) {
			l, err := DecodeLock(value)
			return CellLock{Cell: c, Lock: l}, err
		})
}

// RawCells iterates over the raw cells with rows in span, by cell.
func (s *Snap) RawCells(span mvcc.Span) iter.Seq2[mvcc.RawCell, error] {
	return entries(s, spanWalk(mvcc.GroupRaw, span, false),
		func(c mvcc.Cell, _ mvcc.Timestamp, value []byte) (mvcc.RawCell, error) {
			v, err := copyPlain(value)
			return mvcc.RawCell{Cell: c, Value: v}, err
		})
}

// columnWalk returns the options that walk one column of a column-first group from a row on,
// or from the row after it.
func columnWalk(g mvcc.Group, column mvcc.ObservedColumn, fromRow string,
	after bool) walkOptions {
	prefix := appendColumn(nil, g, column.Table, column.Class, column.Column)
	seek := appendEscaped(bytes.Clone(prefix), fromRow)
	if after {
		seek = prefixEnd(seek)
	}
	return walkOptions{prefix: prefix, seek: seek}
}

// Notifies iterates over the notifications of one column of notify cells by row, from fromRow on, or
// from the row after it. The caller stops at the end of its range of rows.
func (s *Snap) Notifies(column mvcc.ObservedColumn, fromRow string,
	after bool) iter.Seq2[mvcc.CellNotify, error] {
	return entries(s, columnWalk(mvcc.GroupNotify, column, fromRow, after),
		func(c mvcc.Cell, _ mvcc.Timestamp, value []byte) (mvcc.CellNotify, error) {
			n, err := DecodeNotify(value)
			return mvcc.CellNotify{Cell: c, Notify: n}, err
		})
}

// Intents iterates over the weak intents of one column by row and start timestamp, from fromRow
// on.
func (s *Snap) Intents(t mvcc.TableID, column, fromRow string) iter.Seq2[mvcc.CellIntent, error] {
	at := mvcc.ObservedColumn{Table: t, Column: column}
	return entries(s, columnWalk(mvcc.GroupIntent, at, fromRow, false),
		func(c mvcc.Cell, ts mvcc.Timestamp, value []byte) (mvcc.CellIntent, error) {
			i, err := DecodeIntent(value)
			return mvcc.CellIntent{Cell: c, StartTS: ts, Intent: i}, err
		})
}

// TabletStates iterates over the states of all tablets by id.
func (s *Snap) TabletStates() iter.Seq2[TabletStateEntry, error] {
	return s.ownRecords(tabletPrefix)
}

// ownRecords iterates over the records of tablets with the prefix, by tablet.
func (s *Snap) ownRecords(prefix byte) iter.Seq2[TabletStateEntry, error] {
	return func(yield func(TabletStateEntry, error) bool) {
		s.walk(walkOptions{prefix: []byte{prefix}}, func(key, value []byte, err error) bool {
			var e TabletStateEntry
			if err == nil && len(key) != 1+8 {
				err = s.corrupt(key, errKeyLength)
			}
			if err == nil {
				e.Tablet = binary.BigEndian.Uint64(key[1:])
				e.State, err = copyPlain(value)
				err = s.corrupt(key, err)
			}
			return yield(e, err) && err == nil
		})
	}
}
