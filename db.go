package percolator

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// DB is a handle to a repository. It behaves the same in a node's process and over the
// network. Its methods are safe for concurrent use.
type DB struct {
	c      *txn.Client
	owned  bool // Close closes the client too
	closed atomic.Bool
}

// newDB returns a handle on a client that the caller owns: closing the handle leaves the
// client open.
func newDB(c *txn.Client) *DB { return &DB{c: c} }

// CreateTable creates a table. It is idempotent: if the table exists, only missing split
// keys are added. With an expiry it returns ErrInvalid until all nodes of the cluster support
// that and the upgrade is finalized.
func (db *DB) CreateTable(ctx context.Context, spec TableSpec) error {
	if err := db.check(); err != nil {
		return err
	}
	expiry, err := wire.ExpiryPB(spec.Expiry.After, spec.Expiry.Columns)
	if err != nil {
		return txn.Invalid("%v", err)
	}
	if expiry == nil {
		return db.c.CreateTable(ctx, spec.Name, spec.SplitKeys)
	}
	return db.c.CreateExpiring(ctx, spec.Name, spec.SplitKeys, expiry)
}

// SetExpiry replaces the expiry of a table; the zero Expiry ends it. It needs a certificate of the
// role operator. Cells that are already older are deleted soon after.
func (db *DB) SetExpiry(ctx context.Context, table string, e Expiry) error {
	if err := db.check(); err != nil {
		return err
	}
	expiry, err := wire.ExpiryPB(e.After, e.Columns)
	if err != nil {
		return txn.Invalid("%v", err)
	}
	return db.c.SetExpiry(ctx, table, expiry)
}

// DropTable removes a table and its contents. It needs a certificate of the role operator. It
// returns ErrNoTable if the table does not exist.
func (db *DB) DropTable(ctx context.Context, name string) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.DropTable(ctx, name)
}

// Tables returns the tables, ordered by name, without those for which the client has no grant.
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
		e := &specs[i].Expiry
		e.After, e.Columns = wire.Expiry(t.Expiry)
	}
	return specs, nil
}

// Transact runs fn in a transaction and commits it. If the transaction met a conflict or a lock, or an
// overloaded node refused it, Transact runs fn again, after a backoff, until ctx ends; the error then
// wraps both ctx's error and that of the last run. MaxRetries sets a bound; the error is then a
// *RetryError. It also runs fn again, once, if a table was dropped after the client had looked up
// its name, since a new table may have that name. Transact does not retry after ErrCommitUnknown.
//
// If fn returns an error, the transaction is rolled back and Transact returns that error unchanged,
// unless a read of the transaction failed for one of these reasons: then fn runs again, whatever it
// returned.
//
// The start timestamp is allocated by the first read or call of Tx.Start, or else at commit.
func (db *DB) Transact(ctx context.Context, fn func(context.Context, *Tx) error,
	opts ...TxOption) error {
	if err := db.check(); err != nil {
		return err
	}
	o := applyOptions(opts)
	ts, err := db.c.Run(ctx, txn.Options{Name: o.name, Runs: o.runs},
		func(ctx context.Context, t *txn.Txn) error {
			return fn(ctx, wrapTx(t))
		})
	if e, ok := err.(*txn.RetryError); ok { //nolint:errorlint // fn's own stays as it is
		return (*RetryError)(e)
	}
	if err == nil && o.committedAt != nil {
		*o.committedAt = Timestamp(ts)
	}
	return err
}

// Begin starts a transaction at the current timestamp. The caller commits it or rolls it
// back; conflicts are not retried.
func (db *DB) Begin(ctx context.Context, opts ...TxOption) (*Tx, error) {
	if err := db.check(); err != nil {
		return nil, err
	}
	t, err := db.c.Begin(ctx, txn.Options{Name: applyOptions(opts).name})
	if err != nil {
		return nil, err
	}
	return &Tx{t: t}, nil
}

// Snapshot opens a snapshot of the newest committed state. The caller must close it.
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

// View calls fn with a snapshot of the present state and closes the snapshot when fn returns or
// panics. Its error wraps fn's; nothing is retried. fn must not keep the snapshot.
func (db *DB) View(ctx context.Context, fn func(context.Context, *Snapshot) error) (err error) {
	s, err := db.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return fn(ctx, s)
}

// SnapshotAt opens a snapshot of the state at ts. If ts is older than the retained history,
// reads return ErrSnapshotTooOld. SnapshotAt returns ErrInvalid for a timestamp that the
// oracle has not allocated yet.
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

// WaitIdle waits until no notification is left to run. Parked notifications do not count, nor
// those of observers that are paused, retired, or registered by no running process.
func (db *DB) WaitIdle(ctx context.Context) error {
	if err := db.check(); err != nil {
		return err
	}
	return db.c.WaitIdle(ctx)
}

// Close waits for background commits and closes the handle. A handle from Dial closes its
// connections too; a node's own DB closes only this handle, and the node keeps running.
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
