package admin

import (
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/policy"
)

// This file reads and changes the cluster's policy. A change is durable in meta before
// any node is told of it; a call that ends with an error after that has changed the
// policy, and says so.

// ClusterPolicy implements pb.AdminServer: it reads the policy, or changes it in meta and
// returns when every node that is alive has it.
func (s *Service) ClusterPolicy(ctx context.Context,
	req *pb.ClusterPolicyRequest) (*pb.ClusterPolicyResponse, error) {
	// A request that sets nothing reads.
	if req.GetSet() == nil {
		p, err := s.cfg.Node.ReadPolicy(ctx)
		if err != nil {
			return nil, err
		}
		holds, err := s.cfg.History.BackupHolds(ctx)
		return &pb.ClusterPolicyResponse{Policy: p, Holds: holds}, err
	}
	// A newer client may set what this build does not know: it must not hear that it is done.
	if !slices.ContainsFunc(policy.Settings(), func(s policy.Setting) bool {
		_, ok := s.Get(req.GetSet())
		return ok
	}) {
		return nil, refuse("no setting of the policy is named that this node knows")
	}
	if ms := req.GetSet().HistoryMs; ms != nil {
		// With a history that is too short this node, and all that link the same observers,
		// would not open again. If those are all nodes, none could change it back.
		if err := s.cfg.Node.CheckHistory(policy.Millis(*ms)); err != nil {
			return nil, refuse("%v", err)
		}
	}
	// What fails after this is only that somebody has not been told.
	p, err := s.cfg.Policy.Set(ctx, req.GetSet())
	if err != nil {
		return nil, err
	}
	// This node learns it at once, without asking meta.
	err = s.cfg.Node.LearnPolicy(p)
	if err == nil {
		err = s.cfg.Node.ApplyCatalogue(ctx)
	}
	if err != nil {
		return nil, coded.Errorf("", "admin: the policy is changed, to version %d, and a node has not "+
			"said that it knows: %w",
			p.GetVersion(), err)
	}
	return &pb.ClusterPolicyResponse{Policy: p}, nil
}

// HoldBackup implements pb.AdminServer. Whether the caller may end a hold without its token
// is for the guard in front of the service.
func (s *Service) HoldBackup(ctx context.Context,
	req *pb.HoldBackupRequest) (*pb.HoldBackupResponse, error) {
	now, err := s.cfg.Node.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	return s.cfg.History.HoldBackup(ctx, now, req)
}
