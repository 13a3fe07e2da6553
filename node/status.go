package node

import (
	"context"
	"errors"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Status describes the node: who it is, its tablets, its oracle, its observers. A tablet
// that does not answer within a second is left out.
func (n *Node) Status() *pb.NodeStatusResponse {
	status, _ := n.status(context.Background()) // what could be gathered in time
	return status
}

func (n *Node) status(ctx context.Context) (*pb.NodeStatusResponse, error) {
	return n.statusWith(ctx, false)
}

// statusWith is Status for who waits until asker ends; leading: see NodeStatusRequest.
// What others would have to tell may be missing, or old. It fails only if nobody waits
// any more, or, leading, if not all replicas have answered.
func (n *Node) statusWith(asker context.Context, leading bool) (*pb.NodeStatusResponse, error) {
	ctx, cancel := context.WithTimeout(asker, time.Second)
	defer cancel()
	commits, requests := n.tablets.logs.Stats()
	out := &pb.NodeStatusResponse{
		ClusterId: n.identity.ClusterID, NodeId: n.identity.NodeID, Incarnation: n.identity.Incarnation,
		Version: Version(), Listen: n.Addr(), Http: n.HTTPAddr(), StartedUnixMs: n.started.UnixMilli(),
		LogBatches: commits, LogRequests: requests, Observers: n.observers.runs.Load().status(), Registering: n.observers.registration.why(),
	}
	last, served, batches := n.oracle.stats()
	out.OracleLast, out.OracleServed, out.OracleBatches = uint64(last), served, batches
	out.Tablets = n.tablets.statuses(ctx, leading)
	out.UnixMs = n.now().UnixMilli()
	out.Placement = n.placementStatus()
	if err := n.store.WriteBlocked(); err != nil {
		out.WriteBlocked = err.Error()
	}
	if err := n.store.Damaged(); err != nil {
		out.Damaged = err.Error()
	}
	if leading {
		return out, ctx.Err()
	}
	n.metaStatus(asker, out)
	out.Certificates = n.certificateStatus()
	if err := errors.Join(n.store.Damaged(), n.tablets.failures.first()); err != nil {
		out.Failed = err.Error()
	}
	out.History = n.historyStatus(out.Tablets)
	n.diskStatus(out)
	out.PolicyDiffers = n.policy.overruled()
	return out, asker.Err()
}
