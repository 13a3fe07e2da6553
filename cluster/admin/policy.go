package admin

import (
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/policy"
)

// Reads and changes of the cluster's policy. A change is durable in meta before any node receives
// it; a later error means that the policy is changed, and its text says so.

// ClusterPolicy implements pb.AdminServer: it reads the policy, or changes it in meta and returns
// when every live node has it.
func (s *Service) ClusterPolicy(ctx context.Context,
	req *pb.ClusterPolicyRequest) (*pb.ClusterPolicyResponse, error) {
	// A request that sets nothing is a read.
	if req.GetSet() == nil {
		p, err := s.cfg.View.Read(ctx)
		if err != nil {
			return nil, err
		}
		holds, err := s.cfg.History.BackupHolds(ctx)
		return &pb.ClusterPolicyResponse{Policy: p, Holds: holds}, err
	}
	// A newer client may set what this build does not know: that must not be reported as done.
	if !slices.ContainsFunc(policy.Settings(), func(s policy.Setting) bool {
		_, ok := s.Get(req.GetSet())
		return ok
	}) {
		return nil, refuse("the request names no policy setting known to this node")
	}
	if ms := req.GetSet().HistoryMs; ms != nil {
		// With too short a history this node, and all that link the same observers, could not
		// open again. If those are all nodes, none could change it back.
		if err := s.cfg.View.CheckHistory(policy.Millis(*ms)); err != nil {
			return nil, refuse("%v", err)
		}
	}
	// After Set a failure concerns only the distribution.
	p, err := s.cfg.Policy.Set(ctx, req.GetSet())
	if err != nil {
		return nil, err
	}
	// This node applies the policy at once, without reading meta.
	err = s.cfg.View.Learn(p)
	if err == nil {
		err = s.cfg.Node.ApplyCatalogue(ctx)
	}
	if err != nil {
		return nil, coded.Errorf("", "admin: the policy is changed to version %d, but a node has not "+
			"confirmed it; it applies it within 10 s once it can read meta: %w",
			p.GetVersion(), err)
	}
	return &pb.ClusterPolicyResponse{Policy: p}, nil
}

// HoldBackup implements pb.AdminServer. rpc.Guard, in front of the service, decides whether the
// caller may end a hold without its token.
func (s *Service) HoldBackup(ctx context.Context,
	req *pb.HoldBackupRequest) (*pb.HoldBackupResponse, error) {
	now, err := s.cfg.Client.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.History.HoldBackup(ctx, now, req)
}
