package node

import (
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// seenDisks are the nodes that said, when they were last asked how they are, that they take no
// writes for want of disk space, or that their stores are damaged. Safe for concurrent use.
type seenDisks struct {
	mu      sync.Mutex
	full    []uint64
	damaged []uint64
}

// forget begins anew.
func (d *seenDisks) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.damaged = nil, nil
}

// saw notes what a node has said.
func (d *seenDisks) saw(node uint64, s *pb.NodeStatusResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.GetWriteBlocked() != "" {
		d.full = append(d.full, node)
	}
	if s.GetDamaged() != "" {
		d.damaged = append(d.damaged, node)
	}
}

// get returns the nodes without room, and those with a damaged store.
func (d *seenDisks) get() (full, damaged []uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.full), slices.Clone(d.damaged)
}

// seenClocks is what the node that leads meta has seen of all nodes' clocks, its own
// among them, when it last asked how they are.
type seenClocks struct {
	mu     sync.Mutex
	offset map[uint64]time.Duration // of the node's clock from this one's
}

// forget begins anew: what a node said before may not be so any more.
func (c *seenClocks) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = map[uint64]time.Duration{}
}

// saw notes what a node's clock showed, in Unix milliseconds, at some time between two of
// this node's. An answer that took long beside the limit says too little.
func (c *seenClocks) saw(node uint64, unixMs int64, began, ended time.Time, limit time.Duration) {
	if unixMs == 0 || ended.Sub(began) > limit/2 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset[node] = time.UnixMilli(unixMs).Sub(began.Add(ended.Sub(began) / 2))
}

// ahead are the nodes whose clocks are ahead of the median of the others' by more than
// the limit: those would hand meta on (clockJudge).
func (c *seenClocks) ahead(limit time.Duration) (out []uint64) {
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
