package node

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/gateway"
	"github.com/percolator-go/percolator/internal/httpd"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node/telemetry"
)

// sources returns the parts of the node that telemetry reads. All of them must exist, except that
// Link and Remoting are nil on a node that is alone.
func (n *Node) sources() telemetry.Sources {
	return telemetry.Sources{
		Self: n.identity.NodeID, Started: n.started, InMemory: n.cfg.Store.InMemory, Now: n.now,
		Status: n.Status, Router: n.router, Oracles: n.oracles, Peers: n.peerNodes, Link: n.peers,
		Remoting: n.remote, Liveness: n.liveness, Client: n.client, Store: n.store, Gate: n.gate, Policy: n.policy,
		Tablets: telemetry.Tablets{
			Leading:  func(ctx context.Context) []*pb.StatusResponse { return n.tablets.statuses(ctx, true) },
			Measured: &n.tablets.metrics, Writers: n.tablets.logs, Snapshots: n.tablets.snapshot,
			Replicas: n.tablets.replicas,
		},
		Observers: n.observers, Jobs: n.jobs,
		Oracle: n.oracle.running.Load, Lockd: n.lockd.Load,
		Server:  func() *rpc.Server { return n.servers.grpc },
		HTTP:    func() *httpd.Server { return n.servers.http },
		Gateway: func() *gateway.Server { return n.servers.gateway },
	}
}
