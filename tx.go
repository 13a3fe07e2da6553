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
// Its methods are safe for concurrent use: a function of Transact or an observer may share
// it among goroutines, but must wait for them before it returns. Of two concurrent writes to
// one cell either may win. A write after the function has returned, or after the call of
// Commit or Rollback, is dropped: the commit fails with ErrInvalid if it has not been sent
// yet; otherwise a warning is logged.
type Tx struct {
	t       *txn.Txn
	managed bool
}

// wrapTx returns a Tx that the framework commits: its Commit and Rollback return
// ErrManagedTx.
func wrapTx(t *txn.Txn) *Tx { return &Tx{t: t, managed: true} }

// Get returns the transaction's buffered write of a cell, or else its value at the start
// timestamp. It waits for or resolves a conflicting lock. After an error the transaction
// cannot commit.
func (tx *Tx) Get(ctx context.Context, row string, col Column) (value []byte, ok bool, err error) {
	return tx.t.Get(ctx, txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// GetMulti reads many cells with one message per tablet; see Reader.
func (tx *Tx) GetMulti(ctx context.Context, keys ...CellKey) ([]Cell, error) {
	return getMulti(ctx, tx.t, keys)
}

// Scan reads rows in order, including the writes that are buffered when the iteration
// begins; see Reader.
func (tx *Tx) Scan(ctx context.Context, rows RowRange, cols ...Column) iter.Seq2[Cell, error] {
	return scan(ctx, tx.t, rows, cols)
}

// Set buffers a write. It copies value. A row, column or value that exceeds its limit makes
// the commit fail with ErrTooLarge.
func (tx *Tx) Set(row string, col Column, value []byte) {
	tx.t.Set(txn.Key{Table: col.Table, Row: row, Column: col.Name}, value)
}

// Delete buffers a deletion. Deleting a cell that does not exist is a write too.
func (tx *Tx) Delete(row string, col Column) {
	tx.t.Delete(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Lock makes the transaction conflict on a cell as a write does, without changing it: readers
// do not wait for it, and no observer runs. If an overlapping transaction writes or locks the
// cell, only one of the two commits; the other returns ErrConflict or ErrLocked.
//
// Lock excludes write skew. If each of two transactions reads what the other writes, it
// suffices that one of them locks what it reads. An invariant over several cells, such as
// "one of us stays on call", holds if every transaction that could violate it locks the cells
// on which its decision depends.
//
// A lock is part of the commit and costs as much as a write. It leaves one small entry for the
// cell, which is collected with the history. In a transaction that only notifies, Lock is
// equivalent to Validate; in one that neither writes nor notifies it has no effect, since that
// is serialized at its start timestamp. Locking a cell that the transaction also writes has no
// effect. Locking a weak column makes the commit fail with ErrNotifyOnly. Lock needs a cluster
// at version 3 (`percolator cluster finalize`).
func (tx *Tx) Lock(row string, col Column) {
	tx.t.Lock(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Validate makes the commit fail with ErrConflict or ErrLocked, as for a write, if another
// transaction has changed the cell since the start timestamp or holds a lock on it. Unlike
// Lock it leaves no entry: any number of transactions may validate a cell at the same time,
// and none of them blocks its writers. It therefore excludes write skew only if every
// transaction validates, locks or writes all cells that it reads and depends on. The
// transactions are then serializable in the order of their commit timestamps.
//
// Validate costs a read of the cell at commit, and a commit in two phases even if all cells
// are in one tablet. It has no effect in a transaction that neither writes nor notifies, which
// is serialized at its start timestamp, nor for a cell that the transaction writes or locks.
func (tx *Tx) Validate(row string, col Column) {
	tx.t.Validate(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// Notify triggers the weak observer of the column for the row once the transaction has
// committed (§2.4).
func (tx *Tx) Notify(row string, col Column) {
	tx.t.Notify(txn.Key{Table: col.Table, Row: row, Column: col.Name})
}

// StartTS returns the timestamp of the snapshot that the transaction reads. A transaction of
// Begin and the run of an observer have one from the beginning; in Transact StartTS returns 0
// before the first read, which obtains the timestamp, and before a call of Start.
func (tx *Tx) StartTS() Timestamp { return Timestamp(tx.t.StartTS()) }

// Start returns the timestamp of the snapshot that the transaction reads. If there is none yet, as
// in Transact before the first read, it requests one from the oracle. After an error the
// transaction cannot commit.
func (tx *Tx) Start(ctx context.Context) (Timestamp, error) {
	ts, err := tx.t.Start(ctx)
	return Timestamp(ts), err
}

// Commit commits a transaction of Begin and returns its commit timestamp, or the start
// timestamp if it wrote nothing. ErrCommitUnknown means that the outcome is unknown. Commit
// returns ErrManagedTx inside Transact and observers, and ErrTxDone after the end of the
// transaction. Every other error means that the transaction is not committed: ErrConflict and
// ErrLocked, and others whose text says so.
func (tx *Tx) Commit(ctx context.Context) (Timestamp, error) {
	if tx.managed {
		return 0, ErrManagedTx
	}
	ts, err := tx.t.Commit(ctx)
	return Timestamp(ts), err
}

// Rollback ends a transaction of Begin and drops its buffered writes. After the end of the
// transaction it does nothing. Inside Transact and observers it returns ErrManagedTx; return
// an error from the function instead.
func (tx *Tx) Rollback(ctx context.Context) error {
	if tx.managed {
		return ErrManagedTx
	}
	return tx.t.Rollback(ctx)
}

// TxOption configures Transact and Begin.
type TxOption func(*txOptions)

type txOptions struct {
	name        string
	committedAt *Timestamp
	runs        int // maximum number of runs; 0: no limit
}

// Name groups transactions that do the same work: their metrics, and the access patterns
// that prefetching learns.
func Name(name string) TxOption { return func(o *txOptions) { o.name = name } }

// CommittedAt makes Transact store the commit timestamp in *ts, or the start timestamp if
// the transaction wrote nothing.
func CommittedAt(ts *Timestamp) TxOption { return func(o *txOptions) { o.committedAt = ts } }

// MaxRetries bounds how often Transact runs its function again. When n retries have failed,
// Transact returns a *RetryError. Defaults to no bound but the context's; a negative
// n means 0. Begin ignores it.
func MaxRetries(n int) TxOption { return func(o *txOptions) { o.runs = max(n, 0) + 1 } }

func applyOptions(opts []TxOption) txOptions {
	if len(opts) == 0 {
		return txOptions{}
	}
	o := new(txOptions)
	for _, opt := range opts {
		opt(o)
	}
	return *o
}

// Snapshot reads the repository at one timestamp. Its methods are safe for concurrent use.
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

// StartTS returns the snapshot's timestamp. The snapshot contains every commit at or below it.
func (s *Snapshot) StartTS() Timestamp { return Timestamp(s.s.Timestamp()) }

// Timestamp returns StartTS.
//
// Deprecated: use StartTS.
func (s *Snapshot) Timestamp() Timestamp { return s.StartTS() }

// Close releases the snapshot, so that its history can be collected. Later reads return
// ErrClosed; later calls of Close do nothing.
func (s *Snapshot) Close() error { return s.s.Close() }
