// Package handle makes handles of package percolator and opens them, for the packages of
// this module: programs outside of it could do nothing with the types of internal/txn, so
// they are no part of the API. A crash can't concern it.
package handle

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle/hook"
	"github.com/percolator-go/percolator/internal/txn"
)

// NewDB returns a handle over a client that belongs to the caller: closing the handle
// leaves the client open.
func NewDB(c *txn.Client) *percolator.DB { return hook.Get().NewDB(c).(*percolator.DB) }

// Client returns the coordinator behind a handle.
func Client(db *percolator.DB) *txn.Client { return hook.Get().Client(db) }

// WrapTx makes a Tx whose commit belongs to whoever called: its Commit and Rollback
// return ErrManagedTx.
func WrapTx(t *txn.Txn) *percolator.Tx { return hook.Get().WrapTx(t).(*percolator.Tx) }

// WithDB returns a context in which percolator.DBFrom finds db.
func WithDB(ctx context.Context, db *percolator.DB) context.Context {
	return hook.Get().WithDB(ctx, db)
}
