package node

import (
	"context"

	"github.com/percolator-go/percolator/actors/tablet"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// replicaActors are the actors of a node's replicas.
type replicaActors struct{ n *Node }

var _ replicaOwner = replicaActors{}

func (a replicaActors) openReplica(id uint64) error { return a.n.spawnTablet(id) }

func (a replicaActors) stopReplica(id uint64) error {
	if a.n.router.Port(id) == nil {
		return nil
	}
	if err := a.n.stopTablet(id); err != nil {
		return err
	}
	a.n.router.Detach(id)
	return nil
}

func (a replicaActors) destroyed(id uint64) { a.n.host.recovered(id) }

func (a replicaActors) deliver(id uint64, m *wire.RaftMessage) {
	if port := a.n.router.Port(id); port != nil {
		tablet.Receive(a.n.system, port.PID(), m)
	}
}

func (a replicaActors) reread(ctx context.Context) (func(uint64) *pb.TabletDescriptor, error) {
	if err := a.n.router.Refresh(ctx); err != nil {
		return nil, err
	}
	return a.n.router.Descriptor, nil
}
