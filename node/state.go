package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// State describes a node. percolator.DB.Admin describes the cluster.
type State struct {
	ID        uint64
	ClusterID string
	Version   string // of percolator
	Started   time.Time
	LeadsMeta bool
	Tablets   []TabletState // with a replica on the node
	DiskFree  uint64        // bytes; 0 for a store in memory
	DiskUsed  uint64        // bytes, of the node's directory; 0 for a store in memory
	// WriteBlocked is the reason for which the node refuses writes, "" if it accepts them. Failed
	// is the reason for which its store or some of its replicas do not serve, "" if all do.
	WriteBlocked, Failed string
}

// TabletState describes a replica.
type TabletState struct {
	ID        uint64
	Leader    bool
	SizeBytes uint64
	Load      uint64 // recent operations per second
}

// State describes the node. Replicas that do not answer within 1 s are omitted.
func (n *Node) State() State {
	s, _ := n.status.get(context.Background(), false) // possibly incomplete
	state := State{
		ID: s.GetNodeId(), ClusterID: s.GetClusterId(), Version: s.GetVersion(),
		Started: time.UnixMilli(s.GetStartedUnixMs()), DiskFree: s.GetDiskFree(),
		DiskUsed: s.GetDiskUsed(), WriteBlocked: s.GetWriteBlocked(), Failed: s.GetFailed(),
	}
	for _, t := range s.GetTablets() {
		leader := t.GetLeader()
		state.LeadsMeta = state.LeadsMeta || leader && wire.StartOf(t.GetTablet()).Table == mvcc.MetaTable
		state.Tablets = append(state.Tablets, TabletState{
			ID: t.GetTablet().GetTabletId(), Leader: leader, SizeBytes: t.GetSizeBytes(),
			Load: t.GetLoad(),
		})
	}
	return state
}
