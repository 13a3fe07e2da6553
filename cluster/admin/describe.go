package admin

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// Description of tablets: each call reads the tablet map and contacts every replica.

// describeTimeout limits the requests to the replicas, which respond from memory.
const describeTimeout = 2 * time.Second

// DescribeTablet implements pb.AdminServer. A replica that does not respond is described by its
// error.
func (s *Service) DescribeTablet(ctx context.Context,
	req *pb.DescribeTabletRequest) (*pb.DescribeTabletResponse, error) {
	// Refresh the map: operators ask while something is being moved.
	d, err := s.descriptor(ctx, req.GetTabletId(), true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	out := &pb.DescribeTabletResponse{
		Tablet: d, Replicas: make([]*pb.ReplicaStatus, len(d.GetReplicas())),
	}
	var asking sync.WaitGroup
	for i, replica := range d.GetReplicas() {
		// Each goroutine writes its own element, and Wait joins them all: no lock is needed.
		asking.Go(func() {
			out.Replicas[i] = &pb.ReplicaStatus{NodeId: replica.GetNodeId()}
			status, err := s.replicaStatus(ctx, replica.GetNodeId(), d.GetTabletId())
			if out.Replicas[i].Status = status; err != nil {
				out.Replicas[i].Error = withoutResult(err)
			}
		})
	}
	asking.Wait()
	return out, nil
}

// replicaStatus requests the status of one node's replica, whether or not it leads.
func (s *Service) replicaStatus(ctx context.Context, node,
	tablet uint64) (*pb.StatusResponse, error) {
	req := &pb.TabletRequest{
		TabletId: tablet, Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}},
	}
	r, err := s.ask(ctx, node, req)
	if err == nil && r.GetError() != nil {
		err = &txn.ServerError{Code: r.Error.Code, Message: r.Error.Message}
	}
	return r.GetStatus(), err
}
