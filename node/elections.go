package node

import (
	"context"
	"fmt"
	"sync"
)

// elections awaits the first election of tablets that a start has opened. It is safe for concurrent
// use.
type elections struct {
	mu      sync.Mutex
	missing map[uint64]bool // tablets without a leader so far
	all     chan struct{}   // closed when none is missing
}

func newElections() *elections {
	return &elections{missing: map[uint64]bool{}, all: make(chan struct{})}
}

// expect names the tablets to await. It is called once, before any of them runs.
func (e *elections) expect(tablets []uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range tablets {
		e.missing[id] = true
	}
	if len(e.missing) == 0 {
		close(e.all)
	}
}

// elected notes that the tablet has elected a leader here. Only its first election counts.
func (e *elections) elected(tablet uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.missing[tablet] {
		return
	}
	if delete(e.missing, tablet); len(e.missing) == 0 {
		close(e.all)
	}
}

// wait waits until all tablets have elected a leader, or ctx ends.
func (e *elections) wait(ctx context.Context) error {
	select {
	case <-e.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node: not all tablets have elected their leader: %w", ctx.Err())
	}
}
