package store

// Reads and writes of whole tablets: reading all entries of a range of rows, such as for a snapshot
// or a checksum, clearing them, and checking those that another node has sent.

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// ErrForeignEntry reports an entry of a snapshot whose key is not a cell's, is outside the rows
// being filled, or does not follow the previous key. Permanent.
var ErrForeignEntry = errors.New("store: entry does not belong to the rows being filled")

// Rows is a range of rows over all tables, such as a tablet's: from (Table, Row) up to but not
// including (EndTable, EndRow), or without an end unless Bounded.
type Rows struct {
	Table    mvcc.TableID
	Row      string
	EndTable mvcc.TableID
	EndRow   string
	Bounded  bool
}

// rangedGroups are the groups that belong to rows, in the order of their keys. All data of
// a tablet's rows is in one of them, or is a chunk of an entry in D or M (chunk.go).
var rangedGroups = [...]mvcc.Group{
	mvcc.GroupData, mvcc.GroupHistory, mvcc.GroupIntent, mvcc.GroupLocked, mvcc.GroupLock, mvcc.GroupRaw,
	mvcc.GroupNotify, mvcc.GroupRollback, mvcc.GroupWrite,
}

// before reports whether the row lies before the range.
func (r *Rows) before(t mvcc.TableID, row string) bool {
	return t < r.Table || (t == r.Table && row < r.Row)
}

// after reports whether the row lies at or after the range's end, if it has one.
func (r *Rows) after(t mvcc.TableID, row string) bool {
	return r.Bounded && (t > r.EndTable || (t == r.EndTable && row >= r.EndRow))
}

// empty reports whether the range contains no row.
func (r *Rows) empty() bool { return r.after(r.Table, r.Row) }

// mayBeIn reports whether the table may hold keys of the rows. It counts all keys of the
// column-first groups in the rows' tables, and all chunks of long values, as the rows'.
func (r *Rows) mayBeIn(t badger.TableInfo) bool {
	left, right := y.ParseKey(t.Left), y.ParseKey(t.Right)
	for _, g := range rangedGroups {
		first := appendTable(nil, g, r.Table)
		end := prefixEnd([]byte{byte(g)})
		if r.Bounded {
			end = prefixEnd(appendTable(nil, g, r.EndTable))
		}
		if !columnFirst(g) {
			first = appendRow(nil, g, r.Table, r.Row)
			if r.Bounded {
				end = appendRow(nil, g, r.EndTable, r.EndRow)
			}
		}
		if bytes.Compare(left, end) < 0 && bytes.Compare(first, right) <= 0 {
			return true
		}
	}
	return bytes.Compare(left, prefixEnd([]byte{chunkPrefix})) < 0 &&
		bytes.Compare([]byte{chunkPrefix}, right) <= 0
}

// Entry is one key of the state with its value, as Batch.Put takes them.
type Entry struct{ Key, Value []byte }

// Cursor iterates over the entries of a range of rows, or of one prefix, in key order. It reads
// one Snap, which must stay open, and keeps no iterator between two calls.
type Cursor struct {
	snap   *Snap
	rows   *Rows // nil: everything with the prefix
	prefix []byte
	group  int    // index in rangedGroups, if rows is set
	next   []byte // the next key to return; nil at the start of a group
	done   bool
}

// Cursor returns a cursor over all entries of the rows, in all groups.
func (s *Snap) Cursor(rows Rows) *Cursor {
	return &Cursor{snap: s, rows: &rows, done: rows.empty()}
}

// Next returns up to most entries, with at most maxBytes of keys and values, but at least one. At
// the end it returns none. The caller owns the bytes.
func (c *Cursor) Next(most, maxBytes int) (out []Entry, err error) {
	err = c.each(false, func(key, value []byte) bool {
		size := len(key) + len(value)
		if len(out) > 0 && (len(out) == most || size > maxBytes) {
			return false
		}
		maxBytes -= size
		out = append(out, Entry{Key: bytes.Clone(key[c.strip():]), Value: append([]byte{}, value...)})
		return true
	})
	return out, err
}

// Each calls fn for all remaining entries until it returns false, with the keys as they are stored,
// also those of staged entries. key and value are valid only during the call.
func (c *Cursor) Each(fn func(key, value []byte) bool) error { return c.each(false, fn) }

// Delete adds the deletion of the next entries to b, until these are deletesPerCall or b exceeds
// clearBytes, and returns their number: with an empty b, 0 if there are no more.
func (c *Cursor) Delete(b *Batch) (n int, err error) {
	err = c.each(true, func(key, _ []byte) bool {
		if n == deletesPerCall || b.Size() > clearBytes {
			return false
		}
		b.Delete(bytes.Clone(key))
		n++
		return true
	})
	return n, err
}

// Limits of one call of Delete, in keys and in bytes.
const (
	deletesPerCall = 4096
	clearBytes     = 128 << 10
)

// strip returns the length of the prefix to be cut off the keys.
func (c *Cursor) strip() int {
	if c.rows != nil {
		return 0
	}
	return len(c.prefix)
}

// each continues the iteration until fn returns false. The next call begins with the entry that fn
// refused.
func (c *Cursor) each(keysOnly bool, fn func(key, value []byte) bool) error {
	for !c.done {
		prefix := c.prefix
		if c.rows != nil {
			prefix = []byte{byte(rangedGroups[c.group])}
		}
		more, err := c.part(prefix, keysOnly, fn)
		if more || err != nil {
			return err
		}
		c.next = nil
		c.group++
		c.done = c.rows == nil || c.group == len(rangedGroups)
	}
	return nil
}

// part iterates over one group. more reports that fn returned false.
func (c *Cursor) part(prefix []byte, keysOnly bool,
	fn func(key, value []byte) bool) (more bool, err error) {
	it, err := c.snap.iterator(badger.IteratorOptions{Prefix: prefix})
	if err != nil {
		return false, err
	}
	defer it.Close()
	first, end := c.bounds(prefix)
	seek := c.next
	if seek == nil {
		seek = first
	}
	for it.Seek(seek); it.Valid(); {
		item := it.Item()
		key := item.Key()
		skip, past, err := c.place(key, end)
		switch {
		case err != nil:
			return false, err
		case past:
			return false, nil
		case skip != nil:
			it.Seek(skip)
			continue
		}
		taken := false
		take := func(value []byte) error {
			taken = fn(key, value)
			return nil
		}
		if keysOnly {
			taken = fn(key, nil)
		} else if err := c.snap.value(item, key, take); err != nil {
			return false, c.snap.corrupt(key, err)
		}
		if !taken {
			c.next = item.KeyCopy(nil)
			return true, nil
		}
		it.Next()
	}
	return false, nil
}

// bounds returns a key at or before the start of the rows in the current group, and their
// end. end is nil if the rows extend to the end of the group, or in a column-first group,
// where they are many parts.
func (c *Cursor) bounds(prefix []byte) (first, end []byte) {
	if c.rows == nil {
		return prefix, nil
	}
	g := rangedGroups[c.group]
	if columnFirst(g) {
		return appendTable(nil, g, c.rows.Table), nil
	}
	if c.rows.Bounded {
		end = appendRow(nil, g, c.rows.EndTable, c.rows.EndRow)
	}
	return appendRow(nil, g, c.rows.Table, c.rows.Row), end
}

// place classifies a key: past means that neither it nor any later key of the group is in the rows;
// otherwise it is in the rows unless skip, the key to continue from, is set.
func (c *Cursor) place(key, end []byte) (skip []byte, past bool, err error) {
	if c.rows == nil || !columnFirst(mvcc.Group(key[0])) {
		return nil, end != nil && bytes.Compare(key, end) >= 0, nil
	}
	g, cell, _, err := DecodeKey(key)
	if err != nil {
		return nil, false, c.snap.corrupt(key, err)
	}
	column := appendColumn(nil, g, cell.Table, cell.Class, cell.Column)
	switch {
	case c.rows.after(cell.Table, ""):
		return nil, true, nil
	case c.rows.after(cell.Table, cell.Row): // another column may have rows of the range
		return prefixEnd(column), false, nil
	case c.rows.before(cell.Table, cell.Row):
		return appendEscaped(column, c.rows.Row), false, nil
	}
	return nil, false, nil
}

// Filling checks entries received from another node before they are written. It belongs to one
// goroutine.
type Filling struct {
	rows Rows
	last []byte
}

// NewFilling returns a Filling for the entries of the rows, in key order.
func NewFilling(rows Rows) *Filling { return &Filling{rows: rows} }

// Check returns ErrForeignEntry, wrapped, unless the entry belongs to the rows and its key
// follows all earlier ones.
func (f *Filling) Check(e Entry) error {
	_, cell, _, err := DecodeKey(e.Key)
	switch {
	case err != nil:
		return fmt.Errorf("%w: decode the key: %w", ErrForeignEntry, err)
	case f.rows.before(cell.Table, cell.Row) || f.rows.after(cell.Table, cell.Row):
		return fmt.Errorf("%w: table %d row %.64q is outside", ErrForeignEntry, cell.Table,
			cell.Row)
	case bytes.Compare(e.Key, f.last) <= 0:
		return fmt.Errorf("%w: key %.64q does not follow the previous one", ErrForeignEntry,
			e.Key)
	}
	f.last = append(f.last[:0], e.Key...)
	return nil
}
