package rpc

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// operated is an administration that knows one node, and refuses to forget it.
type operated struct{ pb.UnimplementedAdminServer }

func (operated) Nodes(context.Context, *pb.NodesRequest) (*pb.NodesResponse, error) {
	return &pb.NodesResponse{Nodes: []*pb.Node{{NodeId: 7}}}, nil
}

func (operated) ForgetNode(context.Context, *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	return nil, &txn.ServerError{Code: pb.Error_CODE_INVALID, Message: "node 7 is alive"}
}

// TestAdmin: the calls of the service Admin are answered, and refused, as their server does,
// and by their earlier names too.
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
	r, err := s.bare().Nodes(s.ctx, &pb.NodesRequest{}) //nolint:staticcheck // the earlier name is meant
	if err != nil || len(r.Nodes) != 1 {
		t.Errorf("as releases before called it: %v, %v", r, err)
	}
}

// TestAdminOfEarlierNodes: a node without the service Admin is asked by the earlier names.
func TestAdminOfEarlierNodes(t *testing.T) {
	s := serve(t, ServerConfig{Admin: operated{}})
	earlier := grpc.NewServer()
	pb.RegisterPercolatorServer(earlier, s.server.service)
	asked := &served{Cluster: s.Cluster, lis: bufconn.Listen(1 << 20), ctx: s.ctx, t: t}
	done := make(chan error, 1)
	go func() { done <- earlier.Serve(asked.lis) }()
	t.Cleanup(func() {
		earlier.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if r, err := asked.client().Admin().Nodes(s.ctx, &pb.NodesRequest{}); err != nil ||
		len(r.Nodes) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
