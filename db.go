package percolator

import (
	"context"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/txn"
)

// DB is a handle of a repository, the same in a node's process and over the network. All
// its methods may be used concurrently.
type DB struct {
	c      *txn.Client
	owned  bool // Close closes the client too
	closed atomic.Bool
}

// newDB returns a handle over a client that belongs to the caller: closing the handle
// leaves the client open.
func newDB(c *txn.Client) *DB { return &DB{c: c} }

// CreateTable creates a table. It is idempotent: an existing table stays as it is, and
// missing split keys are added.
func (db *DB) CreateTable(ctx context.Context, spec TableSpec) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.CreateTable(ctx, spec.Name, spec.SplitKeys)
}

// DropTable removes a table and all in it. ErrNoTable if there is none.
func (db *DB) DropTable(ctx context.Context, name string) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.DropTable(ctx, name)
}

// Tables lists the tables, by name.
func (db *DB) Tables(ctx context.Context) ([]TableSpec, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	tables, err := db.c.Tables(ctx)
	if err != nil {
		return nil, err
	}
	specs := make([]TableSpec, len(tables))
	for i, t := range tables {
		specs[i].Name = t.Name
		for _, k := range t.SplitKeys {
			specs[i].SplitKeys = append(specs[i].SplitKeys, string(k))
		}
	}
	return specs, nil
}

// Transact runs fn in a transaction and commits it. On a conflict it runs fn again, after
// a backoff, until ctx ends; then the error wraps both ctx's and the last conflict. An
// error of fn ends it, uncommitted, and is returned as it is. After ErrCommitUnknown fn
// is not run again.
//
// The snapshot that fn sees is that of its first read, or of Tx.StartTS if that is called
// before; without either, the transaction starts when it commits.
func (db *DB) Transact(ctx context.Context, fn func(context.Context, *Tx) error,
	opts ...TxOption) error {
	if err := db.check(); err != nil {
		return err
	}
	o := gather(opts)
	ts, err := db.c.Run(ctx, txn.Options{Name: o.name},
		func(ctx context.Context, t *txn.Txn) error {
			return fn(ctx, wrapTx(t))
		})
	if err == nil && o.committedAt != nil {
		*o.committedAt = Timestamp(ts)
	}
	return err
}

// Begin starts a transaction that the caller commits or rolls back; it reads the state of
// now. Nothing is retried.
func (db *DB) Begin(ctx context.Context, opts ...TxOption) (*Tx, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	t, err := db.c.Begin(ctx, txn.Options{Name: gather(opts).name})
	if err != nil {
		return nil, err
	}
	return &Tx{t: t}, nil
}

// Snapshot reads the newest committed state.
func (db *DB) Snapshot(ctx context.Context) (*Snapshot, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	s, err := db.c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{s}, nil
}

// SnapshotAt reads the state at ts: time travel inside the history that is kept. Below it
// reads return ErrSnapshotTooOld; a timestamp that the oracle has not given out yet is
// refused with ErrInvalid.
func (db *DB) SnapshotAt(ctx context.Context, ts Timestamp) (*Snapshot, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	s, err := db.c.SnapshotAt(ctx, txn.Timestamp(ts))
	if err != nil {
		return nil, err
	}
	return &Snapshot{s}, nil
}

// WaitIdle returns when no notification is left to run. Parked and paused ones do not count.
func (db *DB) WaitIdle(ctx context.Context) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.WaitIdle(ctx)
}

// Close waits for commits that go on in the background and closes the handle; over the
// network the connections too. On a node's own DB it closes only this handle.
func (db *DB) Close() error {
	if db.closed.Swap(true) {
		return nil
	}
	if db.owned {
		return db.c.Close()
	}
	db.c.Flush()
	return nil
}

func (db *DB) check() error {
	if db.closed.Load() {
		return ErrClosed
	}
	return nil
}
