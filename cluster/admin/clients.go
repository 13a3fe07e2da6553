package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// Listing and disconnecting the clients of all live nodes, which are contacted concurrently, each
// by a goroutine that is joined before the call returns.

// Clients implements pb.AdminServer.
func (s *Service) Clients(ctx context.Context, _ *pb.ClientsRequest) (*pb.ClientsResponse, error) {
	out := &pb.ClientsResponse{}
	var mu sync.Mutex
	out.Unavailable = s.onNodes(ctx, 0, func(ctx context.Context, node uint64) error {
		clients, err := s.cfg.Node.Clients(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		out.Clients = append(out.Clients, clients...)
		return err
	})
	slices.SortFunc(out.Clients, func(a, b *pb.ClientConnection) int {
		return cmp.Or(cmp.Compare(a.NodeId, b.NodeId), cmp.Compare(a.Id, b.Id))
	})
	return out, nil
}

// DisconnectClient implements pb.AdminServer.
func (s *Service) DisconnectClient(ctx context.Context,
	req *pb.DisconnectClientRequest) (*pb.DisconnectClientResponse, error) {
	if (req.GetIdentity() == "") == (req.GetId() == 0 || req.GetNodeId() == 0) {
		return nil, refuse("name an identity, or a node and the id of one of its connections")
	}
	out := &pb.DisconnectClientResponse{}
	var mu sync.Mutex
	out.Unavailable = s.onNodes(ctx, req.NodeId, func(ctx context.Context, node uint64) error {
		closed, err := s.cfg.Node.Disconnect(ctx, node, req)
		mu.Lock()
		defer mu.Unlock()
		out.Closed += closed
		return err
	})
	return out, nil
}

// onNodes calls fn concurrently for each live node, or only for the node one if one is not 0, and
// returns the nodes for which fn failed, with the reason.
func (s *Service) onNodes(ctx context.Context, one uint64,
	fn func(ctx context.Context, node uint64) error) (failed []string) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	nodes := []uint64{s.cfg.Self}
	for _, m := range s.cfg.Members.Alive() {
		if m.NodeID != s.cfg.Self {
			nodes = append(nodes, m.NodeID)
		}
	}
	if one != 0 {
		nodes = []uint64{one}
	}
	errs := make([]error, len(nodes))
	var asking sync.WaitGroup
	for i, node := range nodes {
		asking.Go(func() { errs[i] = fn(ctx, node) })
	}
	asking.Wait()
	for i, err := range errs {
		if err != nil {
			failed = append(failed, fmt.Sprintf("node %d: %s", nodes[i], withoutResult(err)))
		}
	}
	return failed
}
