package admin

import (
	"context"
	"errors"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/coded"
)

// Orders about grants, which are a part of the policy and are distributed with it.

// SetGrant implements pb.AdminServer. It returns when every live node enforces it.
func (s *Service) SetGrant(ctx context.Context,
	req *pb.SetGrantRequest) (*pb.SetGrantResponse, error) {
	tables, err := s.cfg.Schema.Tables(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(tables, func(t *pb.Table) bool { return t.Name == req.GetTable() })
	if at < 0 {
		return nil, refuse("there is no table %q: `percolator table ls` lists them", req.GetTable())
	}
	p, err := s.cfg.Policy.SetGrant(ctx, &pb.Grant{
		Table: tables[at].Id, TableName: tables[at].Name, Name: req.GetName(), Role: req.GetRole(),
	}, tables)
	if err != nil {
		return nil, err
	}
	// The grant is in meta by now, and an error below does not undo it. View.Learn first: it
	// spares this node the read from meta.
	if err := errors.Join(s.cfg.View.Learn(p), s.cfg.Node.ApplyCatalogue(ctx)); err != nil {
		return nil, coded.Errorf("", "admin: the grants are changed, but a node has not confirmed them; "+
			"it applies them within 10 s once it can read meta: %w", err)
	}
	return &pb.SetGrantResponse{}, nil
}

// Grants implements pb.AdminServer. It reads them from meta, not from this node's cache, and
// omits those of dropped tables: a drop by an earlier build kept them, and a grant written while
// its table was dropped remains.
func (s *Service) Grants(ctx context.Context, req *pb.GrantsRequest) (*pb.GrantsResponse, error) {
	p, err := s.cfg.View.Read(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := s.cfg.Schema.Tables(ctx)
	if err != nil {
		return nil, err
	}
	out := &pb.GrantsResponse{}
	for _, g := range meta.LivingGrants(p.GetGrants(), tables) {
		if req.GetTable() == "" || g.TableName == req.GetTable() {
			out.Grants = append(out.Grants, g)
		}
	}
	return out, nil
}
