package admin

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/health"
)

// This file puts together what the whole cluster says of itself. It keeps nothing. All nodes
// are asked at once, each by a goroutine that has ended when the call returns.

// clusterPatience bounds the questions to the nodes and to the tablets' leaders. Who asks may
// do so because nothing else answers, so it is short: the console, which asks every two
// seconds, is to say within five that there is no quorum.
const clusterPatience = 2500 * time.Millisecond

// ClusterStatus implements pb.AdminServer. What does not answer in time is missing, and the
// findings say so.
func (s *Service) ClusterStatus(ctx context.Context,
	_ *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	out := &pb.ClusterStatusResponse{NodeId: s.cfg.Self}
	asking, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	var wait sync.WaitGroup
	wait.Go(func() { // beside the node table: without a quorum both take all their time
		states, err := s.cfg.Node.ObserverStates(asking)
		if out.Observers = states; err != nil {
			out.ObserversUnavailable = withoutResult(err)
		}
	})
	// A restore that was broken off leaves a table that cannot be opened, and a creation one
	// that lacks tablets: jobs to show.
	var unfinished []*pb.Table
	wait.Go(func() {
		tables, err := s.cfg.Schema.Unfinished(asking)
		if unfinished = tables; err != nil {
			out.RestoresUnavailable = withoutResult(err)
		}
	})
	wait.Go(func() { // meta that does not answer is found below
		out.Schedules, _ = s.cfg.Schedules.List(asking)
	})
	wait.Go(func() { out.Recoveries, _ = s.cfg.Recoveries.Unverified(asking) })
	nodes := &pb.NodesResponse{}
	if err := s.nodeTable(ctx, nodes); err != nil {
		cancel() // the goroutines above write to out and unfinished
		wait.Wait()
		return nil, err
	}
	// Meta may be what is wrong: the list is then what this node knows by itself.
	out.NodesUnavailable = nodes.GetUnavailable()
	for _, n := range nodesOf(nodes.Nodes, s.cfg.Members.Alive()) {
		out.Nodes = append(out.Nodes, &pb.NodeReport{Node: n})
	}
	slices.SortFunc(out.Nodes, func(a, b *pb.NodeReport) int {
		return cmp.Compare(a.Node.NodeId, b.Node.NodeId)
	})
	// A node that gossip takes for dead is not waited for.
	for _, r := range out.Nodes {
		if r.Node.Alive {
			wait.Go(func() { s.report(asking, r) })
		}
	}
	// Each goroutine has written to a report, or a field or variable, of its own.
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, r := range out.Nodes {
		// Only the node that leads meta knows what its drains wait for.
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
	// has the tablets that no node which answers tells of.
	out.UnixMs = time.Now().UnixMilli()
	out.Findings, out.Survives = health.Examine(out, s.cfg.Router.All())
	return out, nil
}

// report asks one node for its status, and compares its clock with this node's.
func (s *Service) report(ctx context.Context, r *pb.NodeReport) {
	began := time.Now()
	status, err := s.cfg.Node.NodeStatus(ctx, r.Node.NodeId)
	if err != nil {
		r.Error = withoutResult(err)
		return
	}
	took := time.Since(began)
	r.Status, r.RoundTripMs = status, took.Milliseconds()
	// It read its clock somewhere between the question and the answer. What lies in between
	// is no difference that anybody can tell.
	switch at := time.UnixMilli(status.GetUnixMs()); {
	case at.Before(began.Truncate(time.Millisecond)):
		r.ClockAheadMs = at.Sub(began).Milliseconds()
	case at.After(began.Add(took)):
		r.ClockAheadMs = at.Sub(began.Add(took)).Milliseconds()
	}
}
