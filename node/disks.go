package node

import (
	"slices"
	"sync"

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
