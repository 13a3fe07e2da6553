package node

import (
	"context"
	"io"
	"log/slog"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node/hosting"
	"github.com/percolator-go/percolator/node/leaderjobs"
)

// adminNode implements the service Admin's view of the node. It owns no state; operators' requests
// call it, on goroutines that may wait.
type adminNode struct {
	self      uint64
	router    *route.Router
	jobs      *leaderjobs.Jobs
	observers *hosting.Host
	status    *statuses
	tablets   *leaderjobs.StatusCache
	gather    func() ([]*dto.MetricFamily, error) // the node's metrics
	logLevel  *slog.LevelVar                      // nil: the log's level cannot be changed
	clients   *rpc.Clients
	peerNodes *cluster.PeerNodes
}

var _ admin.Node = (*adminNode)(nil)

// Place implements admin.Node.
func (n *adminNode) Place() { n.jobs.Place() }

// ObserverRun implements admin.Node.
func (n *adminNode) ObserverRun(ctx context.Context, observer, row string) *pb.ObserverRun {
	return n.observers.RunEverywhere(ctx, observer, row)
}

// WakeBackups implements admin.Node.
func (n *adminNode) WakeBackups() { n.jobs.WakeArchiver() }

// WakeExpiry implements admin.Node.
func (n *adminNode) WakeExpiry() { n.jobs.WakeExpiry() }

// WakeBackfills implements admin.Node.
func (n *adminNode) WakeBackfills() { n.observers.WakeBackfills() }

// ApplyCatalogue implements admin.Node.
func (n *adminNode) ApplyCatalogue(ctx context.Context) error {
	return n.observers.ApplyEverywhere(ctx)
}

// Leaders implements admin.Node.
func (n *adminNode) Leaders(ctx context.Context, age time.Duration) ([]*pb.StatusResponse, error) {
	return n.tablets.Get(ctx, age)
}

// PlacementStatus implements admin.Node. If another node leads meta, where placement runs,
// PlacementStatus queries that node. It returns nil if no leader answers or placement is off.
func (n *adminNode) PlacementStatus(ctx context.Context) *pb.PlacementStatus {
	status, leader := n.jobs.PlacementStatus(), n.router.Leader(cluster.MetaTablet)
	if status == nil && leader != 0 && leader != n.self {
		if s, err := n.status.of(ctx, leader, true); err == nil {
			return s.GetPlacement()
		}
	}
	return status
}

// NodeStatus implements admin.Node.
func (n *adminNode) NodeStatus(ctx context.Context, node uint64) (*pb.NodeStatusResponse, error) {
	return n.status.of(ctx, node, false)
}

// Metrics implements admin.Node.
func (n *adminNode) Metrics(w io.Writer) error {
	families, err := n.gather()
	for _, f := range families {
		if _, failed := expfmt.MetricFamilyToText(w, f); failed != nil {
			return failed
		}
	}
	return err
}

// LogLevel implements admin.Node.
func (n *adminNode) LogLevel() *slog.LevelVar { return n.logLevel }

// Clients implements admin.Node.
func (n *adminNode) Clients(ctx context.Context, node uint64) ([]*pb.ClientConnection, error) {
	if node == n.self {
		return n.clients.List(n.self), nil
	}
	s, err := n.peerNodes.Status(ctx, node, &pb.NodeStatusRequest{Clients: true})
	return s.GetClients(), err
}

// Disconnect implements admin.Node.
func (n *adminNode) Disconnect(ctx context.Context, node uint64,
	req *pb.DisconnectClientRequest) (uint32, error) {
	if node == n.self {
		return n.clients.Disconnect(ctx, req.GetIdentity(), req.GetId()), nil
	}
	r, err := n.peerNodes.Call(ctx, node, &wire.PeerRequest{
		Body: &wire.PeerRequest_Disconnect{Disconnect: req},
	})
	return r.GetDisconnect().GetClosed(), err
}

// ObserverStates implements admin.Node.
func (n *adminNode) ObserverStates(ctx context.Context) ([]*pb.ObserverState, error) {
	return n.observers.StatesEverywhere(ctx)
}
