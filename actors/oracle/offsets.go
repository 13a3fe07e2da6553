package oracle

import (
	"slices"
	"sync"
	"time"
)

// Offsets are the nodes' clocks as the node that leads meta has last seen them, its own
// among them. Whoever asks the nodes reports to it, on any goroutine. The zero value knows
// of none.
type Offsets struct {
	mu     sync.Mutex
	offset map[uint64]time.Duration // of the node's clock from this one's
}

// Forget begins anew: what a node said before may not be so any more.
func (c *Offsets) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = map[uint64]time.Duration{}
}

// Saw notes what a node's clock showed, in Unix milliseconds, at some time between two of
// this node's. An answer that took long beside the limit says too little.
func (c *Offsets) Saw(node uint64, unixMs int64, began, ended time.Time, limit time.Duration) {
	if unixMs == 0 || ended.Sub(began) > limit/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset[node] = time.UnixMilli(unixMs).Sub(began.Add(ended.Sub(began) / 2))
}

// Ahead returns the nodes, in order, whose clocks are ahead of the median of the others'
// by more than the limit: those would hand meta on (Judge).
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
