package node

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// newAdmin returns the service Admin over this node.
func (n *Node) newAdmin() *admin.Service {
	return admin.New(admin.Config{
		Self: n.identity.NodeID, Nodes: n.meta.Nodes, Moves: n.meta.Moves,
		Catalogue: n.meta.Observers, Backfills: n.meta.Backfills, Policy: n.meta.Policy,
		Router: n.router, Carrier: n.carrier,
		Members: n.others.members,
		Node:    adminNode{n},
	})
}

// adminNode is the node as the service Admin sees it. It owns nothing; requests of
// operators call it, on goroutines that may wait.
type adminNode struct{ *Node }

// Timestamp implements admin.Node.
func (n adminNode) Timestamp(ctx context.Context) (mvcc.Timestamp, error) {
	return n.client.Timestamp(ctx)
}

func (n adminNode) Place() { n.changes.jobs.place() }

func (n adminNode) WakeBackfills() { n.observers.wakeBackfills() }

func (n adminNode) ApplyCatalogue(ctx context.Context) error {
	return n.observers.applyEverywhere(ctx)
}

func (n adminNode) ReadPolicy(ctx context.Context) (*pb.Policy, error) { return n.policy.read(ctx) }

func (n adminNode) LearnPolicy(p *pb.Policy) { n.policy.learn(p) }

func (n adminNode) CheckHistory(history time.Duration) error {
	return checkDeadlines(n.policy.observers, history)
}

func (n adminNode) Leaders(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error) {
	return n.statusCache.get(ctx, age)
}

// PlacementStatus implements admin.Node. Placement runs where meta is led: if that is not
// here, the leader is asked. It returns nil if nobody knows.
func (n adminNode) PlacementStatus(ctx context.Context) *pb.PlacementStatus {
	status, leader := n.changes.jobs.placementStatus(), n.router.Leader(cluster.MetaTablet)
	if status == nil && leader != 0 && leader != n.identity.NodeID {
		if s, err := n.status.of(ctx, leader, true); err == nil {
			return s.GetPlacement()
		}
	}
	return status
}

// NodeStatus implements admin.Node.
func (n adminNode) NodeStatus(ctx context.Context, node uint64) (*pb.NodeStatusResponse, error) {
	return n.status.of(ctx, node, false)
}

// ObserverStates implements admin.Node.
func (n adminNode) ObserverStates(ctx context.Context) ([]*pb.ObserverState, error) {
	return n.observers.statesEverywhere(ctx)
}
