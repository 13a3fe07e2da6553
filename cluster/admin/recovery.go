package admin

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// FinishRecovery implements pb.AdminServer: it records that `percolator recover verify` has
// succeeded. It may be repeated.
func (s *Service) FinishRecovery(ctx context.Context,
	req *pb.FinishRecoveryRequest) (*pb.FinishRecoveryResponse, error) {
	r, err := s.cfg.Recoveries.Finish(ctx, req.GetPlan(), time.Now())
	return &pb.FinishRecoveryResponse{Recovery: r}, err
}
