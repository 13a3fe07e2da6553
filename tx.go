package percolator

import (
	"context"
	"iter"

	"github.com/percolator-go/percolator/internal/txn"
)

var (
	_ Reader = (*Tx)(nil)
	_ Reader = (*Snapshot)(nil)
)

// Tx is a transaction (§2.2): it reads the snapshot at its start timestamp and buffers
// its writes until commit.
//
// Its methods may be used concurrently: functions that Transact and observers run may
// share it among goroutines, which they must wait for before they return. Of two
// concurrent writes to one cell either may be the last. A write after the end is dropped.
// If that happens while the transaction is being committed, the commit fails with
// ErrInvalid as long as it has not been sent; later a warning is logged.
type Tx struct {
	t       *txn.Txn
	managed bool
}

// wrapTx makes a Tx whose commit belongs to whoever called: its Commit and Rollback
// return ErrManagedTx.
func wrapTx(t *txn.Txn) *Tx { return &Tx{t: t, managed: true} }

// Get reads one cell at the start timestamp, or what this transaction has buffered for
// it. It waits for, or resolves, a lock that is in the way. After an error the
// transaction cannot commit.
func (tx *Tx) Get(ctx context.Context, row string, col Column) (value []byte, ok bool, err error) {
	return tx.t.Get(ctx, txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// GetMulti reads many cells with one message per tablet; see Reader.
func (tx *Tx) GetMulti(ctx context.Context, keys ...CellKey) ([]Cell, error) {
	return getMulti(ctx, tx.t, keys)
}

// Scan reads rows in order, buffered writes included as they are when the iteration
// begins; see Reader.
func (tx *Tx) Scan(ctx context.Context, rows RowRange, cols ...Column) iter.Seq2[Cell, error] {
	return scan(ctx, tx.t, rows, cols)
}

// Set buffers a write. The value is copied. A row, column or value beyond its limit makes
// the commit fail with ErrTooLarge.
func (tx *Tx) Set(row string, col Column, value []byte) {
	tx.t.Set(txn.Key{Table: col.Table, Row: row, Column: col.Name}, value)
}

// Delete buffers a deletion; deleting what does not exist is a write like any other.
func (tx *Tx) Delete(row string, col Column) {
	tx.t.Delete(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Lock makes the transaction conflict over a cell as if it wrote it, and leaves the cell as it
// is: no reader waits for it, no observer runs. If another transaction that overlaps with this
// one writes or locks the cell, only one of the two commits; the other gets ErrConflict or
// ErrLocked. It excludes write skew: where one transaction reads what the other writes, and
// the other reads what the first one writes, it is enough that one of them locks what it
// reads. The rule that needs several cells, such as "one of us stays on call", is kept if each
// transaction that could break it by itself locks the cells that it relies on.
//
// A lock takes part in the commit like a write, and costs as much. It leaves one small
// entry for the cell, which is collected with the history. In a transaction that notifies and
// writes nothing it does what Validate does; in one that does neither it has no effect, as that
// commits what it has read in one snapshot. Locking a cell that the transaction writes too adds nothing. Lock of a weak
// column makes the commit fail with ErrNotifyOnly. Needs a cluster at version 3
// (`percolator cluster finalize`).
func (tx *Tx) Lock(row string, col Column) {
	tx.t.Lock(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Validate makes the commit fail if another transaction has changed the cell since the start
// timestamp, or is about to: ErrConflict or ErrLocked, as for a cell that is written. Unlike
// Lock it leaves no trace, so that any number of transactions may validate one cell at the same
// time, and none of them keeps others from writing it. Hence it excludes write skew only if all
// take part: every transaction validates, locks or writes all cells that it reads and relies
// on. Then the transactions are serializable, in the order of their commit timestamps.
//
// It costs a read of the cell at commit, in two phases even if all cells are in one tablet. In
// a transaction that neither writes nor notifies it has no effect: that is serialized at its
// start timestamp. Validating a cell that the transaction writes or locks adds nothing.
func (tx *Tx) Validate(row string, col Column) {
	tx.t.Validate(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Notify makes the weak observer of the column run for the row, if and after the
// transaction commits (§2.4).
func (tx *Tx) Notify(row string, col Column) {
	tx.t.Notify(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// StartTS is the snapshot that the transaction reads. In Transact it asks for it if
// nothing has been read yet; if that fails it is 0, and the transaction cannot commit.
func (tx *Tx) StartTS() Timestamp { return Timestamp(tx.t.StartTS()) }

// Commit commits a transaction of Begin and returns its commit timestamp; the start
// timestamp if it wrote nothing. Errors: ErrConflict, ErrLocked: surely not committed.
// ErrCommitUnknown reports that nobody knows. Any other: not committed, and the text says so.
// ErrManagedTx inside Transact and observers, ErrTxDone after the end.
func (tx *Tx) Commit(ctx context.Context) (Timestamp, error) {
	if tx.managed {
		return 0, ErrManagedTx
	}
	ts, err := tx.t.Commit(ctx)
	return Timestamp(ts), err
}

// Rollback ends a transaction of Begin and drops its buffered writes. Harmless after the
// end. Inside Transact and observers it returns ErrManagedTx: return an error there
// instead.
func (tx *Tx) Rollback(ctx context.Context) error {
	if tx.managed {
		return ErrManagedTx
	}
	return tx.t.Rollback(ctx)
}

// TxOption is an option of Transact and Begin.
type TxOption func(*txOptions)

type txOptions struct {
	name        string
	committedAt *Timestamp
}

// Name groups metrics, and what is learned for prefetching, of transactions that do the same work.
func Name(name string) TxOption { return func(o *txOptions) { o.name = name } }

// CommittedAt makes Transact store the commit timestamp there; the start timestamp if
// nothing was written.
func CommittedAt(ts *Timestamp) TxOption { return func(o *txOptions) { o.committedAt = ts } }

func gather(opts []TxOption) txOptions {
	if len(opts) == 0 {
		return txOptions{}
	}
	o := new(txOptions)
	for _, opt := range opts {
		opt(o)
	}
	return *o
}

// Snapshot reads the repository as it was at one timestamp. It may be used concurrently.
type Snapshot struct{ s *txn.Snapshot }

// Get reads one cell; see Reader.
func (s *Snapshot) Get(ctx context.Context, row string,
	col Column) (value []byte, ok bool, err error) {
	return s.s.Get(ctx, txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// GetMulti reads many cells; see Reader.
func (s *Snapshot) GetMulti(ctx context.Context, keys ...CellKey) ([]Cell, error) {
	return getMulti(ctx, s.s, keys)
}

// Scan reads rows in order; see Reader.
func (s *Snapshot) Scan(ctx context.Context, rows RowRange, cols ...Column) iter.Seq2[Cell, error] {
	return scan(ctx, s.s, rows, cols)
}

// Timestamp is the snapshot's timestamp: it sees all that committed at or below it.
func (s *Snapshot) Timestamp() Timestamp { return Timestamp(s.s.Timestamp()) }

// Close ends the snapshot, so that history may be collected. Reads after it return
// ErrClosed. Harmless when repeated.
func (s *Snapshot) Close() error { return s.s.Close() }
