package main

import (
	"context"
	"sync"
	"time"

	"github.com/percolator-go/percolator/examples/webindex/webindex/search"
)

// statusAge is the maximum age of the index's state on the search page: querying it costs a walk
// over the tablets.
const statusAge = time.Second

// waiting caches the number and age of the notifications that wait.
type waiting struct {
	mu    sync.Mutex
	asked time.Time
	last  search.Status
}

// indexed returns the progress of the index.
func (a *application) indexed(ctx context.Context) (search.Status, error) {
	a.status.mu.Lock()
	defer a.status.mu.Unlock()
	if time.Since(a.status.asked) < statusAge {
		return a.status.last, nil
	}
	pages, err := a.export.Index().Count(ctx)
	if err != nil {
		return search.Status{}, err
	}
	pending, err := a.db.Pending(ctx)
	if err != nil {
		return search.Status{}, err
	}
	s := search.Status{Pages: pages}
	for _, o := range pending.Observers {
		s.Waiting += o.Notifications + o.Intents
		if o.Oldest > 0 {
			s.Oldest = max(s.Oldest, time.Since(o.Oldest.Time()))
		}
	}
	a.status.asked, a.status.last = time.Now(), s
	return s, nil
}
