package percolator

import (
	"context"

	"github.com/percolator-go/percolator/internal/handle/hook"
	"github.com/percolator-go/percolator/internal/txn"
)

// The packages of this module make and open handles by package internal/handle, which
// finds here how.
var _ = hook.Set(hook.Functions{
	NewDB:  func(c *txn.Client) any { return newDB(c) },
	Client: func(db any) *txn.Client { return db.(*DB).c },
	WrapTx: func(t *txn.Txn) any { return wrapTx(t) },
	WithDB: func(ctx context.Context, db any) context.Context { return withDB(ctx, db.(*DB)) },
})
