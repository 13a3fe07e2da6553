package txn

import (
	"context"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Propagation of origins (docs/adr/0042) from the notification that an observer run handles to
// everything the run writes, in its own transaction and in others that it starts.

type originKey struct{}

// WithOrigin returns a context whose transactions have the given origin: the timestamp of the
// user's commit that caused them, or the oldest of several.
func WithOrigin(ctx context.Context, origin mvcc.Timestamp) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// originIn returns the origin of transactions begun with ctx, or 0 outside of runs.
func originIn(ctx context.Context) mvcc.Timestamp {
	origin, _ := ctx.Value(originKey{}).(mvcc.Timestamp)
	return origin
}

// SetOrigin sets the transaction's origin to that of the observer run. It must be called
// before the transaction is used concurrently.
func (t *Txn) SetOrigin(origin mvcc.Timestamp) { t.origin = origin }

// GetObserved returns each cell's record, as GetRecords does, and the origins of notifications on cells
// that the transaction has not read before. Every unacknowledged change of such a cell that the transaction sees
// has that origin or a later one.
func (t *Txn) GetObserved(ctx context.Context, cells ...mvcc.Cell) ([]mvcc.ReadResult, error) {
	return t.records(ctx, cells, true)
}
