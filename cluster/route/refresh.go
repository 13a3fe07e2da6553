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

// This file re-reads the tablet map from meta for all goroutines that miss something in
// it. The reading runs on the goroutine of the first that asks, with its context; at most
// one is in flight, and the others wait for it.

// refreshPace is the shortest time between two readings of the tablet map from meta.
const refreshPace = 50 * time.Millisecond

// refresh is the re-reading of the tablet map: one at a time, shared by all who ask for
// it meanwhile, and paced.
type refresh struct {
	mu sync.Mutex
	// nil: there is nowhere to read it from
	read   func(context.Context) ([]*pb.TabletDescriptor, error)
	flight *reading  // the reading under way; nil: none is
	last   time.Time // when the last one ended
}

// reading is one reading of the map; err is set before done is closed.
type reading struct {
	done chan struct{}
	err  error
}

// ReadFrom sets the function that reads the tablet map, Meta.Tablets. It must be called
// before the router is used.
func (r *Router) ReadFrom(read func(context.Context) ([]*pb.TabletDescriptor, error)) {
	r.news.read = read
}

var errNoMap = errors.New("route: there is nowhere to read the tablet map from")

// Refresh reads the tablet map from meta. A caller that comes during a reading shares it;
// one that would follow the last too soon waits first.
func (r *Router) Refresh(ctx context.Context) error {
	n := &r.news
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
		// Nobody reads, but it is too soon. After the pause another may be reading
		// already.
		if f == nil {
			if err := txn.Sleep(ctx, pause); err != nil {
				return err
			}
			continue
		}
		select {
		case <-f.done:
			// Its reader's context may have ended, not ours.
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

// readMap reads the map on behalf of all that wait for f. What was read before an error
// is taken, too.
func (r *Router) readMap(ctx context.Context, f *reading) {
	tablets, err := r.news.read(ctx)
	for _, d := range tablets {
		r.Update(d)
	}
	f.err = err
	r.news.mu.Lock()
	r.news.flight, r.news.last = nil, time.Now()
	r.news.mu.Unlock()
	close(f.done)
}

// Find is like Locate but reads the map anew when no known tablet holds the place.
// Finding none even then is no error: the map in meta lags behind the tablets.
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
