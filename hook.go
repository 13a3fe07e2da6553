package percolator

import (
	"context"

	"github.com/percolator-go/percolator/internal/handle/hook"
	"github.com/percolator-go/percolator/internal/txn"
)

// These are the functions behind package internal/handle, through which the other packages
// of this module construct a DB and a Tx and reach the client of a DB.
var _ = hook.Set(hook.Functions{
	NewDB:  func(c *txn.Client) any { return newDB(c) },
	Client: func(db any) *txn.Client { return db.(*DB).c },
	WrapTx: func(t *txn.Txn) any { return wrapTx(t) },
	WithDB: func(ctx context.Context, db any) context.Context { return withDB(ctx, db.(*DB)) },
})

// In an error, errors.As finds a *txn.LimitError as a *LimitError too.
var _ = txn.SetPublicLimit(func(e *txn.LimitError, target any) bool {
	public, ok := target.(**LimitError)
	if ok {
		*public = (*LimitError)(e)
	}
	return ok
})
