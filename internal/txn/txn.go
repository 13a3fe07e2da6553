package txn

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Txn is one transaction (§2.2). Reads may run concurrently; everything else belongs to one goroutine at a time.
//
// Its writes live here until Commit: nothing is sent before, so a transaction that is dropped leaves nothing behind.
type Txn struct {
	reader
	// ended is set by the first of Commit, Rollback and the end of Run's function; whoever sets it commits, or nobody.
	ended  atomic.Bool
	failed error // the first failed read or impossible write: the transaction cannot commit (guarded by mu)

	// writes are in the order of their first Set, one per cell; room holds the first few, so that a small transaction
	// allocates nothing for them. index finds a cell's place in writes once they are many.
	writes []pending
	index  map[mvcc.Cell]int
	// notifies may hold a cell several times until Commit.
	notifies []mvcc.Cell
	size     int // bytes buffered, about
	limit    int // of size
	// unresolved are writes to tables whose ids are not known yet, and all later ones, in order.
	unresolved []unresolvedWrite
	room       [2]pending
	counted    *nameCounters // of the transaction's name; nil without one
	// ctx is that of whoever began it. It is kept for StartTS alone, whose signature has none.
	ctx context.Context
}

// cellCost is about the memory that a buffered cell takes besides its row, column and value.
const cellCost = 192

// pending is a buffered write.
type pending struct {
	cell  mvcc.Cell
	kind  mvcc.Kind
	value []byte
}

// unresolvedWrite is a write whose table is known by name only. Kind 0 is a notification.
type unresolvedWrite struct {
	key   Key
	kind  mvcc.Kind
	value []byte
}

// StartTS is the snapshot that the transaction reads. It asks the oracle if the transaction has not read anything yet; if
// that fails, the transaction cannot commit, and StartTS is 0.
func (t *Txn) StartTS() mvcc.Timestamp {
	if t.ended.Load() {
		return t.begun()
	}
	at, err := t.Start(t.ctx)
	if err != nil {
		t.fail(err)
	}
	return at
}

// Start is StartTS with a context and an error.
func (t *Txn) Start(ctx context.Context) (mvcc.Timestamp, error) { return t.start(ctx) }

// Set buffers a write; the value is copied.
func (t *Txn) Set(k Key, value []byte) {
	if t.limit > 0 && t.size > t.limit { // failed already: not even a copy
		return
	}
	if limit := t.c.cfg.Limits.Value; len(value) > limit {
		t.fail(&LimitError{Limit: "value", Size: len(value), Max: limit})
		return
	}
	t.buffer(k, mvcc.KindPut, handOut(value))
}

// Delete buffers a deletion.
func (t *Txn) Delete(k Key) { t.buffer(k, mvcc.KindDelete, nil) }

// Notify makes the weak observer of the column run for the row, if the transaction commits.
func (t *Txn) Notify(k Key) { t.buffer(k, 0, nil) }

// SetCell buffers a write to a cell by its id, ack columns too: for the observer framework. The value must not change
// any more.
func (t *Txn) SetCell(cell mvcc.Cell, value []byte) {
	// The framework's own cells are within the limits, and their tables' ids come from the catalogue.
	if !t.ended.Load() {
		t.put(cell, mvcc.KindPut, value)
	}
}

// buffer takes in a write of any kind. It has no context, hence can't look a table up: an id that is not in the cache is
// looked up when there is one.
func (t *Txn) buffer(k Key, kind mvcc.Kind, value []byte) {
	if t.ended.Load() {
		return // Commit and reads report ErrTxDone; a write has nobody to tell
	}
	if err := t.c.checkAddress(k.Row, k.Column); err != nil {
		t.fail(err)
		return
	}
	if t.size += len(k.Row) + len(k.Column) + len(value) + cellCost; t.size > t.limit {
		t.fail(&LimitError{Limit: "transaction", Size: t.size, Max: t.limit})
		// It will never commit: whoever goes on writing holds nothing by that.
		t.writes, t.index, t.notifies, t.unresolved = nil, nil, nil, nil
		return
	}
	// Once a write waits for its table all later ones queue up behind it: the last write of a cell must win.
	id, known := t.c.tables.known(k.Table)
	if !known || len(t.unresolved) > 0 {
		t.unresolved = append(t.unresolved, unresolvedWrite{k, kind, value})
		return
	}
	t.put(mvcc.Cell{Table: id, Row: k.Row, Column: k.Column}, kind, value)
}

// put buffers a write over what is buffered for the cell already.
func (t *Txn) put(cell mvcc.Cell, kind mvcc.Kind, value []byte) {
	if kind == 0 {
		t.notifies = append(t.notifies, cell)
		return
	}
	if at := t.find(cell); at >= 0 {
		t.writes[at].kind, t.writes[at].value = kind, value
		return
	}
	t.writes = append(t.writes, pending{cell, kind, value})
	if t.index != nil {
		t.index[cell] = len(t.writes) - 1
	} else if len(t.writes) > smallSet {
		t.index = make(map[mvcc.Cell]int, 4*smallSet)
		for i := range t.writes {
			t.index[t.writes[i].cell] = i
		}
	}
}

// find is the place of the cell's buffered write; -1 if there is none. A linear search beats a map for the few cells of
// most transactions, and costs no allocation.
func (t *Txn) find(cell mvcc.Cell) int {
	if t.index != nil {
		if i, ok := t.index[cell]; ok {
			return i
		}
		return -1
	}
	for i := range t.writes {
		if t.writes[i].cell == cell {
			return i
		}
	}
	return -1
}

// resolveTables looks up the tables of writes that wait for that. It is called wherever there is a context.
func (t *Txn) resolveTables(ctx context.Context) error {
	// Concurrent reads may come here together; the lock is held across the question to meta, so that the first of them
	// asks and the others find nothing left to do.
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.unresolved) > 0 {
		w := t.unresolved[0]
		id, err := t.c.TableID(ctx, w.key.Table)
		if err != nil {
			return err
		}
		t.put(mvcc.Cell{Table: id, Row: w.key.Row, Column: w.key.Column}, w.kind, w.value)
		t.unresolved = t.unresolved[1:]
	}
	return nil
}

// fail makes the transaction unable to commit (invariant 9 of design section 4).
func (t *Txn) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The first is the cause of what follows.
	if t.failed == nil {
		t.failed = err
	}
}

// failure is why the transaction cannot commit; nil if it can.
func (t *Txn) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// beginRead prepares a read; its error has been made to stick.
func (t *Txn) beginRead(ctx context.Context) error {
	if t.ended.Load() {
		return ErrTxDone
	}
	if err := t.resolveTables(ctx); err != nil {
		t.fail(err)
		return err
	}
	return nil
}

// Get reads one cell, or what is buffered for it.
func (t *Txn) Get(ctx context.Context, k Key) (value []byte, ok bool, err error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, false, err
	}
	cell, err := t.c.cell(ctx, k)
	if err != nil {
		t.fail(err)
		return nil, false, err
	}
	// Read your writes: what is buffered is what the transaction sees, deletes too.
	if at := t.find(cell); at >= 0 {
		w := &t.writes[at]
		if w.kind == mvcc.KindDelete {
			return nil, false, nil
		}
		return handOut(w.value), true, nil
	}
	res, err := t.readOne(ctx, cell)
	if err != nil {
		t.fail(err)
		return nil, false, err
	}
	if !res.Found {
		return nil, false, nil
	}
	return handOut(res.Value), true, nil
}

// GetMulti reads many cells, or what is buffered for them.
// The values are in the order of keys, also for cells that do not exist.
func (t *Txn) GetMulti(ctx context.Context, keys []Key) ([]Value, error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, err
	}
	values, err := t.getMulti(ctx, keys, t.overlay)
	if err != nil {
		t.fail(err)
	}
	return values, err
}

// overlay is what is buffered for the cell.
func (t *Txn) overlay(cell mvcc.Cell) (Value, bool) {
	at := t.find(cell)
	if at < 0 {
		return Value{}, false
	}
	if w := &t.writes[at]; w.kind == mvcc.KindPut {
		return Value{Bytes: handOut(w.value), Found: true}, true
	}
	return Value{}, true
}

// GetRecords is reader.GetRecords; a failure sticks.
func (t *Txn) GetRecords(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	if err := t.beginRead(ctx); err != nil {
		return nil, err
	}
	results, err := t.read(ctx, cells)
	if err != nil {
		t.fail(err)
	}
	return results, err
}

// Scan yields the cells of a range, buffered writes over them as they are when the iteration begins.
func (t *Txn) Scan(ctx context.Context, s ScanSpec) iter.Seq2[mvcc.ReadCell, error] {
	return func(yield func(mvcc.ReadCell, error) bool) {
		if err := t.beginRead(ctx); err != nil {
			yield(mvcc.ReadCell{}, err)
			return
		}
		for cell, err := range t.scan(ctx, s, t.bufferedIn) {
			if err != nil {
				t.fail(err)
			}
			if !yield(cell, err) {
				return
			}
		}
	}
}

// bufferedIn is the sorted buffered writes of a scan's range and columns: copied, so that the loop's body may write.
// Columns are sorted. Weak columns and acks are never scanned.
func (t *Txn) bufferedIn(span mvcc.Span, columns []string) []pending {
	var in []pending
	for _, w := range t.writes {
		if w.cell.Table != span.Table || !span.Contains(w.cell.Row) || w.cell.Class != mvcc.ClassData {
			continue
		}
		if _, asked := slices.BinarySearch(columns, w.cell.Column); asked || len(columns) == 0 {
			in = append(in, w)
		}
	}
	slices.SortFunc(in, func(a, b pending) int { return compareCells(a.cell, b.cell) })
	return in
}

// Rollback ends the transaction without committing. Nothing has been written, so nothing is undone.
func (t *Txn) Rollback(context.Context) error {
	t.end()
	return nil
}

// end is where every transaction ends; what it read is learned from.
func (t *Txn) end() bool {
	if t.ended.Swap(true) {
		return false
	}
	// What the transaction read is worth learning from, however it ends.
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guesses.finish(&t.reader)
	return true
}
