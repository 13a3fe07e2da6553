package oracle

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Offsets records how far the nodes' clocks, including this node's own, were from this
// node's when they were last read. It is used where meta is led. Its methods may be called
// from any goroutine. The zero value is empty.
type Offsets struct {
	mu     sync.Mutex
	offset map[uint64]time.Duration // by node: its clock minus this one's
	before map[uint64]time.Duration // what Forget removed last
}

// Forget removes all entries, because what nodes reported earlier may be outdated.
func (c *Offsets) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.offset = c.offset, map[uint64]time.Duration{}
}

// Last returns each node's offset as read last since the last Forget or, of a node that has not
// been read since, the offset that Forget removed.
func (c *Offsets) Last() map[uint64]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[uint64]time.Duration{}
	maps.Copy(out, c.before)
	maps.Copy(out, c.offset)
	return out
}

// Saw records that a node's clock showed unixMs, in Unix milliseconds, at some time between
// began and ended by this node's clock. It ignores an answer that took longer than half of
// the limit, because the offset would be too inexact.
func (c *Offsets) Saw(node uint64, unixMs int64, began, ended time.Time, limit time.Duration) {
	if unixMs == 0 || ended.Sub(began) > limit/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offset == nil {
		c.offset = map[uint64]time.Duration{}
	}
	c.offset[node] = time.UnixMilli(unixMs).Sub(began.Add(ended.Sub(began) / 2))
}

// Ahead returns, in order of node id, the nodes whose clocks are ahead of the median of the
// others' by more than the limit. Such nodes would transfer meta's leadership (see Judge).
func (c *Offsets) Ahead(limit time.Duration) (out []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node, mine := range c.offset {
		others := map[uint64]time.Duration{}
		for other, theirs := range c.offset {
			if other != node {
				others[other] = mine - theirs
			}
		}
		if len(others) > 0 && medianOf(others) > limit {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}
