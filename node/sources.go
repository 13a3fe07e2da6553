package node

import (
	"context"

	"github.com/percolator-go/percolator/actors/tablet"
	"github.com/percolator-go/percolator/actors/tablet/replicas"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
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
		Tablets: n.tablets, Observers: n.observers, Jobs: n.jobs,
		Oracle: n.oracle.running.Load, Lockd: n.lockd.Load,
		Server:  func() *rpc.Server { return n.servers.grpc },
		HTTP:    func() *httpd.Server { return n.servers.http },
		Gateway: func() *gateway.Server { return n.servers.gateway },
	}
}

// LeadingStatuses implements telemetry.Tablets.
func (t *tablets) LeadingStatuses(ctx context.Context) []*pb.StatusResponse {
	return t.statuses(ctx, true)
}

// Measured implements telemetry.Tablets.
func (t *tablets) Measured() *tablet.Metrics { return &t.metrics }

// Writers implements telemetry.Tablets.
func (t *tablets) Writers() (log, state writers.Stats) { return t.logs.Stats() }

// Snapshots implements telemetry.Tablets.
func (t *tablets) Snapshots() snapshot.Stats { return t.snapshot.Stats() }

// Replicas implements telemetry.Tablets.
func (t *tablets) Replicas() replicas.Stats { return t.replicas.Stats() }
