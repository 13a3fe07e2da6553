package version

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// A node's knowledge of its cluster's agreed versions. The node creates a Gate after it has
// opened its store; membership, gossip, the peers and users of features query it on any
// goroutine.

// ErrNotActive means that a requested feature is not known to be supported by all nodes.
var ErrNotActive = errors.New("version: not all nodes of the cluster are known to support this feature")

// Gate holds a node's knowledge of its cluster's versions. Versions only grow. If the
// knowledge is stale, the gate refuses a feature that could already be used. Its methods may
// be called concurrently.
type Gate struct {
	build   Range
	persist func(Number) error

	mu              sync.Mutex // serializes calls of Learn, including their writes
	minimum, active atomic.Uint32
}

// NewGate returns the Gate of a node. build is the range that it supports, minimum the version
// recorded in its store. persist durably records a later one.
func NewGate(build Range, minimum Number, persist func(Number) error) *Gate {
	g := &Gate{build: build, persist: persist}
	g.minimum.Store(uint32(minimum))
	return g
}

// Build returns the versions that the node's build supports.
func (g *Gate) Build() Range { return g.build }

// Agreed returns the cluster's agreed versions as known to the node.
func (g *Gate) Agreed() Agreed { return Agreed{Number(g.minimum.Load()), Number(g.active.Load())} }

// Learn updates the cluster's agreed versions. The store records the minimum before Learn
// returns, and before this node uses any feature of that version. On an error the gate is
// unchanged: ErrIncompatible, or the store's error, after which Learn may be called again.
func (g *Gate) Learn(a Agreed) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := a.Admit(g.build); err != nil {
		return err
	}
	if have := Number(g.minimum.Load()); a.Minimum > have {
		if err := g.persist(a.Minimum); err != nil {
			return fmt.Errorf("version: record that the cluster is at version %d: %w", a.Minimum, err)
		}
		g.minimum.Store(uint32(a.Minimum))
	}
	g.active.Store(max(g.active.Load(), uint32(min(a.Active, g.build.Newest))))
	return nil
}

// Has reports whether the feature may be used. It returns true for the zero Feature.
func (g *Gate) Has(f Feature) bool { return f.Since == 0 || Number(g.active.Load()) >= f.Since }

// Writes reports whether records may use the feature. It is Has, except in a node that has
// started but not reached meta yet: there the version in its directory decides, since records
// written before that must not lack what other nodes rely on. This is safe even after an
// interrupted finalization, since no earlier build can join any more.
func (g *Gate) Writes(f Feature) bool {
	return g.Has(f) || (g.active.Load() == 0 && Number(g.minimum.Load()) >= f.Since)
}

// Check returns nil if the feature may be used, and otherwise an error that wraps ErrNotActive
// and states the remedy.
func (g *Gate) Check(f Feature) error {
	if g.Has(f) {
		return nil
	}
	return NotActive(f, g.Agreed())
}

// NotActive returns the error for a feature requested in a cluster where it is not active.
func NotActive(f Feature, a Agreed) error {
	if a.Active == 0 {
		return fmt.Errorf("%w: %s: this node has not yet read the cluster's version from meta", ErrNotActive, f.Name)
	}
	return fmt.Errorf("%w: %s needs the cluster to be at version %d, and it is at %d: start a build that supports %d on "+
		"every node, and then run `percolator cluster finalize`", ErrNotActive, f.Name, f.Since, a.Active, f.Since)
}
