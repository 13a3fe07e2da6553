package txn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// The write buffer of a transaction. Until the transaction ends, goroutines access it
// concurrently under guard; after that Commit owns it and reads it without guard.

// errLateWrite is the error of a commit that ran concurrently with a write of the same
// transaction.
var errLateWrite = Errorf("%w: a goroutine wrote to the transaction during its commit: "+
	"wait for all goroutines that write, before Commit or the end of the function of Run",
	ErrInvalid)

// fewWrites is the initial capacity of the buffer, in writes.
const fewWrites = 2

// cellCost is the approximate overhead of a buffered cell, in bytes, in addition to its row,
// column and value.
const cellCost = 192

// kindValidate marks a cell that is not written but must not have changed. It is internal to
// this package. If a cell is buffered several times the smallest kind wins, and of two writes
// the last: writes and locks are checked for conflicts anyway. For example, Lock after Set
// leaves the write, and Set after Validate replaces the validation.
const kindValidate = mvcc.KindLock + 1

// writes reports whether p changes the cell's value: locks and validations do not.
func (p *bufferedWrite) writes() bool { return p.kind < mvcc.KindLock }

// bufferedWrite is a write, lock or validation that a transaction has buffered.
type bufferedWrite struct {
	cell  mvcc.Cell
	kind  mvcc.Kind
	value []byte
}

// unresolvedWrite is a write whose table's id is not known yet. Kind 0 is a notification.
type unresolvedWrite struct {
	key   Key
	kind  mvcc.Kind
	value []byte
}

// writeBuffer holds a transaction's writes, locks, validations and notifications.
type writeBuffer struct {
	guard     sync.Mutex
	ended     bool  // set by Commit, Rollback or the end of Run's function
	late      bool  // a write was dropped because the transaction had ended
	committed bool  // the transaction committed: a late write is logged
	failed    error // the first failed read or invalid write: the transaction cannot commit

	// writes has one entry per cell, including locks and validations, in the order in which the cells
	// were first buffered. index maps cells to entries; it is nil while there are few.
	writes []bufferedWrite
	index  map[mvcc.Cell]int
	// Commit sorts the entries: the first `written` of them are writes, the others locks. It moves
	// validations to a slice of their own.
	written     int
	validations []mvcc.Cell
	// notifies may hold a cell several times until Commit.
	notifies []mvcc.Cell
	size     int // approximate bytes buffered
	limit    int // of size
	// unresolved holds, in order, the first write to a table whose id is not known yet and all
	// later writes.
	unresolved []unresolvedWrite
	timers     []unsetTimer
}

// Set buffers a write. It copies the value.
func (t *Txn) Set(k Key, value []byte) {
	if limit := t.c.cfg.Limits.Value; len(value) > limit {
		t.Refuse(&LimitError{Limit: "value", Size: len(value), Max: limit})
		return
	}
	t.buffer(k, mvcc.KindPut, value)
}

// Delete buffers a deletion.
func (t *Txn) Delete(k Key) { t.buffer(k, mvcc.KindDelete, nil) }

// Lock makes the transaction conflict on the cell as if it wrote it. A transaction without writes
// only validates the cell, or, without notifications too, ignores the call.
func (t *Txn) Lock(k Key) { t.buffer(k, mvcc.KindLock, nil) }

// Validate makes the commit fail if the cell changes after the start timestamp and before the
// commit timestamp, unless the transaction writes and notifies nothing.
func (t *Txn) Validate(k Key) { t.buffer(k, kindValidate, nil) }

// Notify schedules a run of the column's weak observer for the row if the transaction commits.
func (t *Txn) Notify(k Key) { t.buffer(k, 0, nil) }

// SetCell buffers a write to a cell by its table's id, for the observer framework. It accepts
// ack columns. The caller must not change value afterwards.
func (t *Txn) SetCell(cell mvcc.Cell, value []byte) {
	t.guard.Lock()
	defer t.guard.Unlock()
	// The framework's own cells are within the limits, and their tables exist.
	if !t.tooLate() {
		t.put(cell, mvcc.KindPut, value)
	}
}

// buffer buffers a write of any kind. It has no context to query meta with: a table id that is
// not cached is looked up by the next call that has one.
func (t *Txn) buffer(k Key, kind mvcc.Kind, value []byte) {
	if err := t.c.cfg.checkAddress(k.Row, k.Column); err != nil {
		t.Refuse(err)
		return
	}
	t.effects.noteWrite(k, kind)
	t.guard.Lock()
	defer t.guard.Unlock()
	if !t.grow(k, len(value)) {
		return
	}
	if kind == mvcc.KindPut {
		value = handOut(value)
	}
	// Once a write waits for its table, all later ones queue behind it: the last write of
	// a cell must win.
	id, known := t.c.meta.Known(k.Table)
	if !known || len(t.unresolved) > 0 {
		t.unresolved = append(t.unresolved, unresolvedWrite{k, kind, value})
		return
	}
	t.put(mvcc.Cell{Table: id, Row: k.Row, Column: k.Column}, kind, value)
}

// grow counts a cell to buffer, with a value of this size. It returns false if the cell must not be
// buffered, because the transaction has ended or exceeds its limit. The caller holds guard.
func (t *Txn) grow(k Key, value int) bool {
	if t.tooLate() || t.size > t.limit {
		return false
	}
	if t.size += len(k.Row) + len(k.Column) + value + cellCost; t.size <= t.limit {
		return true
	}
	t.failWith(&LimitError{Limit: "transaction", Size: t.size, Max: t.limit})
	// The transaction cannot commit, so its writes need not be kept.
	t.writes, t.index, t.notifies, t.unresolved, t.timers = nil, nil, nil, nil, nil
	return false
}

// put buffers a write, or merges it with one of the same cell as kindValidate describes.
func (b *writeBuffer) put(cell mvcc.Cell, kind mvcc.Kind, value []byte) {
	if kind == 0 {
		b.notifies = append(b.notifies, cell)
		return
	}
	if at := b.find(cell); at >= 0 {
		if w := &b.writes[at]; kind < mvcc.KindLock || kind < w.kind {
			w.kind, w.value = kind, value
		}
		return
	}
	if b.writes == nil {
		b.writes = make([]bufferedWrite, 0, fewWrites)
	}
	b.writes = append(b.writes, bufferedWrite{cell, kind, value})
	if b.index != nil {
		b.index[cell] = len(b.writes) - 1
	} else if len(b.writes) > smallSet {
		b.index = make(map[mvcc.Cell]int, 4*smallSet)
		for i := range b.writes {
			b.index[b.writes[i].cell] = i
		}
	}
}

// find returns the index of the cell's buffered write, or -1. For the few cells of most
// transactions a linear search is faster than a map and does not allocate.
func (b *writeBuffer) find(cell mvcc.Cell) int {
	if b.index != nil {
		if i, ok := b.index[cell]; ok {
			return i
		}
		return -1
	}
	for i := range b.writes {
		if b.writes[i].cell == cell {
			return i
		}
	}
	return -1
}

// buffered returns the cell's buffered write, or ErrTxDone if the transaction has ended.
func (b *writeBuffer) buffered(cell mvcc.Cell) (w bufferedWrite, ok bool, err error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	if b.ended {
		return w, false, ErrTxDone
	}
	if at := b.find(cell); at >= 0 && b.writes[at].writes() {
		return b.writes[at], true, nil
	}
	return w, false, nil
}

// bufferedIn returns a sorted copy of the buffered writes in a scan's range and columns, so
// that the loop's body may write. columns must be sorted. Weak columns and acks are not
// scanned. It returns ErrTxDone if the transaction has ended.
func (b *writeBuffer) bufferedIn(span mvcc.Span, columns []string) ([]bufferedWrite, error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	if b.ended {
		return nil, ErrTxDone
	}
	var found []bufferedWrite
	for _, w := range b.writes {
		in := w.cell.Table == span.Table && span.Contains(w.cell.Row)
		if !in || w.cell.Class != mvcc.ClassData || !w.writes() {
			continue
		}
		if _, asked := slices.BinarySearch(columns, w.cell.Column); asked || len(columns) == 0 {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b bufferedWrite) int { return a.cell.Compare(b.cell) })
	return found, nil
}

// resolveTables looks up the table ids of unresolved writes before a read. It returns when
// there are none left or the transaction has ended.
func (t *Txn) resolveTables(ctx context.Context) error {
	for {
		name, waits, err := t.unknownTable()
		if err != nil || !waits {
			return err
		}
		// Not under guard: a concurrent Set must not block on meta.
		id, err := t.c.meta.TableID(ctx, name)
		if err != nil {
			return err
		}
		t.guard.Lock()
		if !t.ended {
			t.bindTable(name, id)
		}
		t.guard.Unlock()
	}
}

// unknownTable returns the table that the oldest unresolved write waits for, or ErrTxDone
// if the transaction has ended.
func (b *writeBuffer) unknownTable() (name string, waits bool, err error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	switch {
	case b.ended:
		return "", false, ErrTxDone
	case len(b.unresolved) == 0:
		return "", false, nil
	}
	return b.unresolved[0].key.Table, true, nil
}

// bindTable buffers the unresolved writes up to the first one to another table than name.
func (b *writeBuffer) bindTable(name string, id mvcc.TableID) {
	for len(b.unresolved) > 0 && b.unresolved[0].key.Table == name {
		w := b.unresolved[0]
		b.unresolved = b.unresolved[1:]
		b.put(mvcc.Cell{Table: id, Row: w.key.Row, Column: w.key.Column}, w.kind, w.value)
	}
}

// bindTables is resolveTables for Commit, which owns the buffer.
func (t *Txn) bindTables(ctx context.Context) error {
	for len(t.unresolved) > 0 {
		name := t.unresolved[0].key.Table
		id, err := t.c.meta.TableID(ctx, name)
		if err != nil {
			return err
		}
		t.bindTable(name, id)
	}
	return nil
}

// fail prevents the transaction from committing.
func (b *writeBuffer) fail(err error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	b.failWith(err)
}

// failWith is fail for a caller that holds guard. It keeps the first error.
func (b *writeBuffer) failWith(err error) {
	if b.failed == nil && !b.ended {
		b.failed = err
	}
}

// failure returns why the transaction cannot commit, or nil.
func (b *writeBuffer) failure() error {
	b.guard.Lock()
	defer b.guard.Unlock()
	return b.failed
}

// Refuse fails the transaction because of an invalid write.
func (t *Txn) Refuse(err error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if !t.tooLate() {
		t.failWith(err)
	}
}

// over reports whether the transaction has ended.
func (b *writeBuffer) over() bool {
	b.guard.Lock()
	defer b.guard.Unlock()
	return b.ended
}

// tooLate reports whether the transaction has ended, and if so records that a write was
// dropped. The caller holds guard.
//
// Set returns no error, but a write must not be lost silently. Until the commit has been sent,
// a late write makes it fail (overtaken). After that the write counts as made after the
// commit, and is logged.
func (t *Txn) tooLate() bool {
	if !t.ended {
		return false
	}
	if t.committed && !t.late {
		t.c.lateWrite()
	}
	t.late = true
	return true
}

// overtaken returns errLateWrite if writes were dropped before the commit was sent.
func (t *Txn) overtaken() error {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.late {
		return errLateWrite
	}
	return nil
}

// lateWrite logs, at most once a second, that a committed transaction has lost a write.
func (c *Client) lateWrite() {
	now := time.Now().Unix()
	if last := c.warned.Load(); last != now && c.warned.CompareAndSwap(last, now) {
		c.cfg.Logger.Warn("a write was dropped: it came during or after its transaction's commit; " +
			"wait for all goroutines that write, before Commit or the end of the function of Run")
	}
}

// done records that the transaction has committed.
func (t *Txn) done() {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.committed = true; t.late {
		t.c.lateWrite()
	}
}
