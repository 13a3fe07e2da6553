package admin

import (
	"context"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// The expiry of a table's cells, which is part of its record in meta.

// SetTableExpiry implements pb.AdminServer.
func (s *Service) SetTableExpiry(ctx context.Context,
	req *pb.SetTableExpiryRequest) (*pb.SetTableExpiryResponse, error) {
	if err := s.cfg.Schema.SetExpiry(ctx, req.GetName(), req.GetId(), req.GetExpiry()); err != nil {
		return nil, err
	}
	s.cfg.Node.WakeExpiry()
	return &pb.SetTableExpiryResponse{}, nil
}
