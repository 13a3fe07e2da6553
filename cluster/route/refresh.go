package route

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// This file reads the tablet map from meta again for goroutines that did not find a tablet
// in it. The first caller reads on its own goroutine with its own context; callers that
// come meanwhile wait for that reading, so at most one is in flight.

// refreshPace is the shortest time between two readings of the tablet map from meta.
const refreshPace = 50 * time.Millisecond

// refresh is the state of Router.Refresh. The mutex guards flight and last.
type refresh struct {
	mu sync.Mutex
	// read returns the map as meta has it; nil: it cannot be read.
	read   func(context.Context) ([]*pb.TabletDescriptor, error)
	flight *reading  // the reading under way; nil: none is
	last   time.Time // when the last one ended
}

// reading is one reading of the map; err is set before done is closed.
type reading struct {
	done chan struct{}
	err  error
}

// ReadFrom sets the function that reads the tablet map from meta. It must be called before
// the router is used.
func (r *Router) ReadFrom(read func(context.Context) ([]*pb.TabletDescriptor, error)) {
	r.refresh.read = read
}

var errNoMap = errors.New("route: there is nowhere to read the tablet map from")

// Refresh reads the tablet map from meta. A caller that comes during a reading shares its
// result. Readings are at least refreshPace apart: a caller that comes too soon waits.
func (r *Router) Refresh(ctx context.Context) error {
	n := &r.refresh
	if n.read == nil {
		return errNoMap
	}
	for {
		n.mu.Lock()
		f := n.flight
		pause := refreshPace - time.Since(n.last)
		// Nobody reads and the last reading is old enough: this caller reads for all.
		if f == nil && pause <= 0 {
			f = &reading{done: make(chan struct{})}
			n.flight = f
			n.mu.Unlock()
			r.readMap(ctx, f)
			return f.err
		}
		n.mu.Unlock()
		// It is too soon to read again. After the pause another caller may be reading.
		if f == nil {
			if err := txn.Sleep(ctx, pause); err != nil {
				return err
			}
			continue
		}
		select {
		case <-f.done:
			// If only the reader's context has ended, this caller tries by itself.
			if f.err == nil || ctx.Err() != nil ||
				!(errors.Is(f.err, context.Canceled) ||
					errors.Is(f.err, context.DeadlineExceeded)) {
				return f.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readMap reads the map for all callers that wait for f. Descriptors that were read before
// an error are stored as well.
func (r *Router) readMap(ctx context.Context, f *reading) {
	tablets, err := r.refresh.read(ctx)
	for _, d := range tablets {
		r.Update(d)
	}
	f.err = err
	r.refresh.mu.Lock()
	r.refresh.flight, r.refresh.last = nil, time.Now()
	r.refresh.mu.Unlock()
	close(f.done)
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
