package node

import (
	"context"
	"errors"
	"runtime"
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
	commits, requests := n.logs.Stats()
	out := &pb.NodeStatusResponse{
		ClusterId: n.identity.ClusterID, NodeId: n.identity.NodeID, Incarnation: n.identity.Incarnation,
		Version: Version(), Listen: n.Addr(), Http: n.HTTPAddr(), StartedUnixMs: n.started.UnixMilli(),
		LogBatches: commits, LogRequests: requests, Observers: n.notify.Load().status(), Registering: n.registration.why(),
	}
	if n.oracle != nil {
		last, served, batches := n.oracle.Stats()
		out.OracleLast, out.OracleServed, out.OracleBatches = uint64(last), served, batches
	}
	out.Tablets = n.tabletStatuses(ctx, leading)
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
	if err := errors.Join(n.store.Damaged(), n.host.failure()); err != nil {
		out.Failed = err.Error()
	}
	out.History = n.historyStatus(out.Tablets)
	n.diskStatus(out)
	out.PolicyDiffers = n.policy.overruled()
	return out, asker.Err()
}

// tabletStatuses asks this node's replicas; leading: those that lead.
func (n *Node) tabletStatuses(ctx context.Context, leading bool) (out []*pb.StatusResponse) {
	for _, d := range n.router.All() {
		if n.router.Port(d.TabletId) == nil || leading && !n.router.LeadsHere(d.TabletId) {
			continue
		}
		if s := n.tabletStatus(ctx, d.TabletId); s != nil {
			out = append(out, s)
		}
	}
	return out
}

// readWorkers is how many goroutines answer reads: they wait for the disk at times.
func readWorkers() int { return 2 * runtime.GOMAXPROCS(0) }

// keptGoroutines is how many idle goroutines are kept for actors' turns: enough for those
// that are busy in turn.
func keptGoroutines() int { return 4 * runtime.GOMAXPROCS(0) }
