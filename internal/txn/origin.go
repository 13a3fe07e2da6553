package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file carries origins (docs/adr/0042) from the notification that a run of an observer
// is for into what the run writes, in its own transaction and in others that it makes.

type originKey struct{}

// WithOrigin returns a context in which transactions go back to the user's commit at origin,
// or to several of which it is the oldest.
func WithOrigin(ctx context.Context, origin mvcc.Timestamp) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// originIn returns the origin of transactions that are begun in ctx, 0 outside of runs.
func originIn(ctx context.Context) mvcc.Timestamp {
	origin, _ := ctx.Value(originKey{}).(mvcc.Timestamp)
	return origin
}

// SetOrigin has the transaction go back to what a run of an observer is for. It must be
// called before the transaction is used concurrently.
func (t *Txn) SetOrigin(origin mvcc.Timestamp) { t.origin = origin }

// GetObserved is GetRecords, whose results also have the origins of notifications on cells
// that the transaction has not read before. All changes of such a cell that the transaction
// sees go back to its origin or a later one, but for those that are acknowledged.
func (t *Txn) GetObserved(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	return t.records(ctx, cells, true)
}
