package route

import (
	"context"
	"errors"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Refresh of the tablet map from meta, for goroutines that did not find a tablet. The first
// caller reads on its own goroutine with its own context; callers that arrive in the meantime
// wait for that read, so at most one is in flight.

// refreshPace is the minimum interval between two reads of the tablet map from meta.
const refreshPace = 50 * time.Millisecond

// refresh is the state of Router.Refresh. last and err belong to the holder of turn.
type refresh struct {
	// read returns the map as meta has it; nil means it cannot be read.
	read func(context.Context) ([]*pb.TabletDescriptor, error)
	turn chan struct{} // capacity 1: held while the map is read
	last time.Time     // when the last reading ended; err is its error
	err  error
}

// ReadFrom sets the function that reads the tablet map from meta. It must be called before
// the router is used.
func (r *Router) ReadFrom(read func(context.Context) ([]*pb.TabletDescriptor, error)) {
	r.refresh.read = read
}

var errNoMap = errors.New("route: cannot read the tablet map: ReadFrom was not called")

// Refresh reads the tablet map from meta. A call during a read shares its result, unless the
// reader's context ended. Reads are at least refreshPace apart: an earlier call waits.
func (r *Router) Refresh(ctx context.Context) error {
	n, came := &r.refresh, time.Now()
	if n.read == nil {
		return errNoMap
	}
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// Do not share an error that only says that the other caller's context has ended.
	if n.last.After(came) && !errors.Is(n.err, context.Canceled) &&
		!errors.Is(n.err, context.DeadlineExceeded) {
		return n.err
	}
	if err := txn.Sleep(ctx, refreshPace-time.Since(n.last)); err != nil {
		return err
	}
	tablets, err := n.read(ctx)
	for _, d := range tablets { // also the tablets that were read before an error
		r.Update(d)
	}
	n.last, n.err = time.Now(), err
	return err
}

// Find is like Locate but reads the map again if no known tablet holds the row. An empty
// result is no error: the map in meta lags behind the tablets.
func (r *Router) Find(ctx context.Context, table mvcc.TableID, row string,
	limit int) ([]*pb.TabletDescriptor, error) {
	if held := r.Locate(table, row, limit); len(held) > 0 {
		return held, nil
	}
	if err := r.Refresh(ctx); err != nil && !errors.Is(err, errNoMap) {
		return nil, err
	}
	return r.Locate(table, row, limit), nil
}
