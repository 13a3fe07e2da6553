// Package handle converts between handles of package percolator and types of internal/txn, for
// the packages of this module. Other programs cannot use the types of internal/txn, so these
// conversions are not part of the API. It has no state.
package handle

import (
	"context"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/handle/hook"
	"github.com/percolator-go/percolator/internal/txn"
)

// NewDB returns a handle over a client owned by the caller: closing the handle does not close
// the client.
func NewDB(c *txn.Client) *percolator.DB { return hook.Get().NewDB(c).(*percolator.DB) }

// Client returns the client of a handle.
func Client(db *percolator.DB) *txn.Client { return hook.Get().Client(db) }

// WrapTx returns a Tx that only the caller commits: its Commit and Rollback return
// ErrManagedTx.
func WrapTx(t *txn.Txn) *percolator.Tx { return hook.Get().WrapTx(t).(*percolator.Tx) }

// WithDB returns a context in which percolator.DBFrom finds db.
func WithDB(ctx context.Context, db *percolator.DB) context.Context {
	return hook.Get().WithDB(ctx, db)
}
