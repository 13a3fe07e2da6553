package node

import (
	"slices"
	"sync"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// seenDisks keeps which nodes said, when placement last asked for their status, that they
// take no writes for want of disk space, or that their stores are damaged. A node that
// does not answer is in neither list. Its answers come on several goroutines at once;
// placement reads them afterwards.
type seenDisks struct {
	mu      sync.Mutex
	full    []uint64
	damaged []uint64
}

// forget empties both lists, before the nodes are asked again.
func (d *seenDisks) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.damaged = nil, nil
}

// saw records what a node has said.
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
