package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/peer"
	"github.com/percolator-go/percolator/internal/health"
)

// The combined status of the cluster. All live nodes are contacted concurrently, each by a
// goroutine that is joined before the call returns.

// statusTimeout limits the requests to the nodes and to the tablets' leaders. It is short
// because the status is requested when nothing else responds: the console, which requests it
// every two seconds, must report within five that there is no quorum.
const statusTimeout = 2500 * time.Millisecond

// ClusterStatus implements pb.AdminServer. Parts that do not respond in time are missing, and the
// findings report that.
func (s *Service) ClusterStatus(ctx context.Context,
	_ *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	out := &pb.ClusterStatusResponse{NodeId: s.cfg.Self}
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var wait sync.WaitGroup
	wait.Go(func() { // in parallel with nodeTable: without a quorum of meta both time out
		states, err := s.cfg.Node.ObserverStates(asking)
		if out.Observers = states; err != nil {
			out.ObserversUnavailable = withoutResult(err)
		}
	})
	// An interrupted restore leaves a table that cannot be opened, and an interrupted creation
	// one that lacks tablets: jobs to report.
	var unfinished []*pb.Table
	wait.Go(func() {
		tables, err := s.cfg.Schema.Unfinished(asking)
		if unfinished = tables; err != nil {
			out.RestoresUnavailable = withoutResult(err)
		}
	})
	wait.Go(func() { // the error is dropped: nodeTable reports an unresponsive meta
		out.Schedules, _ = s.cfg.Schedules.List(asking)
	})
	wait.Go(func() { out.Recoveries, _ = s.cfg.Recoveries.Unverified(asking) })
	nodes := &pb.NodesResponse{}
	if err := s.nodeTable(ctx, nodes); err != nil {
		cancel() // ends the goroutines above, which write to out and unfinished
		wait.Wait()
		return nil, err
	}
	// Without a response from meta the list is what this node itself knows.
	out.NodesUnavailable = nodes.GetUnavailable()
	for _, n := range nodesOf(nodes.Nodes, s.cfg.Members.Alive()) {
		out.Nodes = append(out.Nodes, &pb.NodeReport{Node: n})
	}
	slices.SortFunc(out.Nodes, func(a, b *pb.NodeReport) int {
		return cmp.Compare(a.Node.NodeId, b.Node.NodeId)
	})
	// A node that gossip considers dead is not contacted.
	for _, r := range out.Nodes {
		if r.Node.Alive {
			wait.Go(func() { s.report(asking, r) })
		}
	}
	// Each goroutine has written to its own report, field or variable.
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, r := range out.Nodes {
		// Only the node that leads meta knows what blocks the drains of nodes.
		for id, why := range r.GetStatus().GetPlacement().GetBlockedNodes() {
			for _, blocked := range out.Nodes {
				if blocked.Node.NodeId == id {
					blocked.Node.Blocked = why
				}
			}
		}
	}
	out.Jobs = jobsOf(out, unfinished, s.cfg.Router.All())
	// Last, since the ages of locks and notifications are counted from here. The tablet map
	// includes tablets that no responding node reports.
	out.UnixMs = time.Now().UnixMilli()
	out.Findings, out.Survives = health.Examine(out, s.cfg.Router.All())
	return out, nil
}

// report requests one node's status and compares its clock with this node's.
func (s *Service) report(ctx context.Context, r *pb.NodeReport) {
	began := time.Now()
	status, err := s.cfg.Node.NodeStatus(ctx, r.Node.NodeId)
	if err != nil {
		r.Error, r.CertificateRefused = withoutResult(err), errors.Is(err, peer.ErrCertificates)
		return
	}
	took := time.Since(began)
	r.Status, r.RoundTripMs = status, took.Milliseconds()
	// The node read its clock between request and response; a difference within that interval is
	// not measurable.
	switch at := time.UnixMilli(status.GetUnixMs()); {
	case at.Before(began.Truncate(time.Millisecond)):
		r.ClockAheadMs = at.Sub(began).Milliseconds()
	case at.After(began.Add(took)):
		r.ClockAheadMs = at.Sub(began.Add(took)).Milliseconds()
	}
}
