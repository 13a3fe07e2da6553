package oracle

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/leaktest"
	"github.com/percolator-go/percolator/internal/mvcc"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fakeMeta is a meta tablet: a mark, a term, and a gate that delays its answers.
type fakeMeta struct {
	mu        sync.Mutex
	term      uint64
	mark      uint64
	asked     int
	alone     bool // the only voter
	leased    bool // one of several, with a lease
	confirmed int
	err       error
	gate      chan struct{} // nil: answers at once
}

func (f *fakeMeta) Mark(raiseTo uint64, then func(term, mark uint64, err error)) {
	f.mu.Lock()
	f.asked++
	f.mark = max(f.mark, raiseTo)
	term, mark, err, gate := f.term, f.mark, f.err, f.gate
	f.mu.Unlock()
	if gate == nil {
		then(term, mark, err)
		return
	}
	go func() {
		<-gate
		then(term, mark, err)
	}()
}

// Confirmed confirms at once if alone or leased is set.
func (f *fakeMeta) Confirmed() (term, mark uint64, alone, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed++
	return f.term, f.mark, f.alone, f.alone || f.leased
}

func (f *fakeMeta) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// clock is a wall clock that a test moves forward and back.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func start(t *testing.T, meta *fakeMeta, c *clock) *Oracle {
	t.Helper()
	return spawn(t, meta, Config{Clock: c.Now})
}

func take(t *testing.T, o *Oracle, n uint32) mvcc.Timestamp {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := o.Port().Ask(ctx, &pb.TimestampsRequest{Count: n}, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Count != n {
		t.Fatalf("%d timestamps of %d", r.Count, n)
	}
	return mvcc.Timestamp(r.First)
}

func at(year int) *clock { return &clock{now: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)} }
