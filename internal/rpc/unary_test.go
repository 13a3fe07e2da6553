package rpc

import (
	"context"
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// operated is an administration service that knows one node and refuses to forget it.
type operated struct{ pb.UnimplementedAdminServer }

func (operated) Nodes(context.Context, *pb.NodesRequest) (*pb.NodesResponse, error) {
	return &pb.NodesResponse{Nodes: []*pb.Node{{NodeId: 7}}}, nil
}

func (operated) ForgetNode(context.Context, *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	return nil, &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "node 7 is alive"}
}

// TestAdmin: calls of the service Admin are answered, and refused, as by their server.
func TestAdmin(t *testing.T) {
	s := serve(t, ServerConfig{Admin: operated{}})
	c := s.client().Admin()
	if r, err := c.Nodes(s.ctx, &pb.NodesRequest{}); err != nil || len(r.Nodes) != 1 ||
		r.Nodes[0].NodeId != 7 {
		t.Errorf("%v, %v", r, err)
	}
	_, err := c.ForgetNode(s.ctx, &pb.ForgetNodeRequest{NodeId: 7})
	var refusal *txn.ServerError
	if !errors.As(err, &refusal) || refusal.Code != pb.Error_CODE_INVALID ||
		refusal.Message != "node 7 is alive" {
		t.Errorf("a refusal: %v", err)
	}
}
