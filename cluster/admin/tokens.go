package admin

import (
	"context"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Orders about the console's tokens, which are a record in meta. Times are this node's.

// CreateToken implements pb.AdminServer. The secret stays with the caller: the request and meta
// contain only its hash.
func (s *Service) CreateToken(ctx context.Context,
	req *pb.CreateTokenRequest) (*pb.CreateTokenResponse, error) {
	t, err := s.cfg.Tokens.Create(ctx, req, time.Now())
	return &pb.CreateTokenResponse{Token: t}, err
}

// Tokens implements pb.AdminServer. It returns all tokens that were not revoked, also those that
// have expired since the last CreateToken, which removes expired ones.
func (s *Service) Tokens(ctx context.Context, _ *pb.TokensRequest) (*pb.TokensResponse, error) {
	all, err := s.cfg.Tokens.List(ctx)
	return &pb.TokensResponse{Tokens: all}, err
}

// RevokeToken implements pb.AdminServer. The console looks a token up at each use, so it does not
// accept this one any more; the gateway accepts it for up to a second longer.
func (s *Service) RevokeToken(ctx context.Context,
	req *pb.RevokeTokenRequest) (*pb.RevokeTokenResponse, error) {
	return &pb.RevokeTokenResponse{}, s.cfg.Tokens.Revoke(ctx, req.GetName())
}
