package request

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// granter is a Transport whose oracle counts from 1. Its first answer waits until release is
// closed, with timestamps that were granted before.
type granter struct {
	Transport
	mu      sync.Mutex
	last    mvcc.Timestamp
	asked   []int // counts, by request
	release chan struct{}
}

func (g *granter) grant(count int) mvcc.Timestamp {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.last + 1
	g.last += mvcc.Timestamp(count)
	return first
}

func (g *granter) Timestamps(_ context.Context, count int) (mvcc.Timestamp, int, error) {
	first := g.grant(count)
	g.mu.Lock()
	g.asked = append(g.asked, count)
	wait := len(g.asked) == 1
	g.mu.Unlock()
	if wait {
		<-g.release
	}
	return first, count, nil
}

func withGranter(t *testing.T, f func(t *testing.T, g *granter, o *Oracle)) {
	synctest.Test(t, func(t *testing.T) {
		g := &granter{release: make(chan struct{})}
		o := NewOracle(g, time.Second, time.Second, false)
		go o.Run(t.Context())
		f(t, g, o)
	})
}

// TestTimestampsShareRequests: one request is pending at a time, and all later callers share the
// next one.
func TestTimestampsShareRequests(t *testing.T) {
	withGranter(t, func(t *testing.T, g *granter, o *Oracle) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := map[mvcc.Timestamp]bool{}
		get := func() {
			ts, err := o.Get(t.Context())
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[ts] {
				t.Errorf("%d twice, or %v", ts, err)
			}
			seen[ts] = true
		}
		wg.Go(get)
		synctest.Wait()
		for range 500 {
			wg.Go(get)
		}
		synctest.Wait()
		if len(g.asked) != 1 {
			t.Errorf("requests of %v: two are pending at once", g.asked)
		}
		close(g.release)
		wg.Wait()
		if len(g.asked) != 2 || g.asked[1] != 500 {
			t.Errorf("requests of %v: the 500 who asked during the first share the second", g.asked)
		}
	})
}

// TestLateAnswer: a late answer serves only the callers that waited before its request was sent:
// later ones would get a timestamp from before their call.
func TestLateAnswer(t *testing.T) {
	withGranter(t, func(t *testing.T, g *granter, o *Oracle) {
		var early, late mvcc.Timestamp
		var wg sync.WaitGroup
		get := func(to *mvcc.Timestamp) {
			wg.Go(func() {
				var err error
				if *to, err = o.Get(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		get(&early)
		synctest.Wait()
		between := g.grant(1) // another transaction commits in between
		get(&late)
		synctest.Wait()
		close(g.release)
		wg.Wait()
		if early >= between || late <= between {
			t.Errorf("asked before %d, got %d; asked after, got %d", between, early, late)
		}
	})
}
