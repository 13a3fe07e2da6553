package version

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// This file has what one node knows of the versions that its cluster has agreed on. The
// node makes a Gate when it has opened its store; the door, gossip, the peers and whoever
// uses a feature ask it on any goroutine.

// ErrNotActive reports that a feature was asked for that not all nodes are known to have.
var ErrNotActive = errors.New("version: not all nodes of the cluster are known to have this")

// Gate is what a node knows of its cluster's versions. They only grow, and what it knows may
// be old: then it refuses a feature that it could use already. Its methods may be called
// concurrently.
type Gate struct {
	build   Range
	persist func(Number) error

	mu              sync.Mutex // orders Learn, also while it writes
	minimum, active atomic.Uint32
}

// NewGate returns the Gate of a node of a build, whose store says the minimum. persist has the
// store say a later one, durably.
func NewGate(build Range, minimum Number, persist func(Number) error) *Gate {
	g := &Gate{build: build, persist: persist}
	g.minimum.Store(uint32(minimum))
	return g
}

// Build returns the versions that the node's build knows.
func (g *Gate) Build() Range { return g.build }

// Agreed returns what the node knows to be agreed on.
func (g *Gate) Agreed() Agreed { return Agreed{Number(g.minimum.Load()), Number(g.active.Load())} }

// Learn takes note of what the cluster has agreed on. The store says the minimum before
// Learn returns, and before any feature of that version is used here. After an error the
// gate is as it was: ErrIncompatible, or the store's, after which Learn may be called again.
func (g *Gate) Learn(a Agreed) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := a.Admit(g.build); err != nil {
		return err
	}
	if have := Number(g.minimum.Load()); a.Minimum > have {
		if err := g.persist(a.Minimum); err != nil {
			return fmt.Errorf("version: note that the cluster is at version %d: %w", a.Minimum, err)
		}
		g.minimum.Store(uint32(a.Minimum))
	}
	g.active.Store(max(g.active.Load(), uint32(min(a.Active, g.build.Newest))))
	return nil
}

// Has reports whether the feature may be used. The zero Feature always may.
func (g *Gate) Has(f Feature) bool { return f.Since == 0 || Number(g.active.Load()) >= f.Since }

// Writes reports whether records may have the feature. It is Has, but for a node that has
// started and has yet to reach meta: it goes by its directory, or what it wrote meanwhile
// would lack what others rely on. Where a finalisation was cut short before, no earlier
// build is let in either.
func (g *Gate) Writes(f Feature) bool {
	return g.Has(f) || (g.active.Load() == 0 && Number(g.minimum.Load()) >= f.Since)
}

// Check returns nil if the feature may be used, else ErrNotActive with what to do.
func (g *Gate) Check(f Feature) error {
	if g.Has(f) {
		return nil
	}
	return NotActive(f, g.Agreed())
}

// NotActive returns the error of a feature that was asked for in a cluster that does not use
// it.
func NotActive(f Feature, a Agreed) error {
	if a.Active == 0 {
		return fmt.Errorf("%w: %s: this node has yet to reach meta, which knows", ErrNotActive, f.Name)
	}
	return fmt.Errorf("%w: %s needs the cluster to be at version %d, and it is at %d: start a build that knows %d on "+
		"every node, and then run `percolator cluster finalize`", ErrNotActive, f.Name, f.Since, a.Active, f.Since)
}
