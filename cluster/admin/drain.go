package admin

import (
	"context"
	"errors"
	"time"

	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Orders to move replicas and to forget nodes without replicas. They are written to meta;
// placement, on the node that leads meta, carries them out.

// DrainNode implements pb.AdminServer. It rejects a drain that would leave too few nodes for the
// replicas.
func (s *Service) DrainNode(ctx context.Context,
	req *pb.DrainNodeRequest) (*pb.DrainNodeResponse, error) {
	r, err := s.setDrain(ctx, req)
	if err != nil {
		return nil, err
	}
	// Only a hint: without this call placement finds the order in its next turn.
	s.cfg.Node.Place()
	return &pb.DrainNodeResponse{Node: nodesOf([]*pb.Node{nodePB(r)}, s.member(req.NodeId))[0]}, nil
}

// setDrain writes the order to meta, or with Undo its withdrawal.
func (s *Service) setDrain(ctx context.Context,
	req *pb.DrainNodeRequest) (*wire.NodeRecord, error) {
	if req.Undo { // an undo needs no other node, so only a drain is checked
		return s.cfg.Nodes.SetNodeState(ctx, req.NodeId, pb.NodeState_NODE_STATE_ACTIVE,
			pb.NodeState_NODE_STATE_DRAINING, pb.NodeState_NODE_STATE_DRAINED)
	}
	if err := s.mayDrain(ctx, req.NodeId); err != nil {
		return nil, err
	}
	// The number of replicas to move, for the job's progress. The map may be slightly old;
	// drainJob corrects for that.
	replicas := uint32(0)
	for _, d := range s.cfg.Router.All() {
		if wire.ReplicaOn(d, req.NodeId) != nil {
			replicas++
		}
	}
	return s.cfg.Nodes.StartDrain(ctx, req.NodeId, replicas)
}

// member returns the node's gossip record, or nothing if it is not alive.
func (s *Service) member(id uint64) []cluster.Member {
	if m, alive := s.cfg.Members.Member(id); alive {
		return []cluster.Member{m}
	}
	return nil
}

// mayDrain rejects a drain that could not complete because the other nodes are too few for the
// replicas of every tablet.
func (s *Service) mayDrain(ctx context.Context, id uint64) error {
	records, err := s.cfg.Nodes.Nodes(ctx)
	if err != nil {
		return err
	}
	var others, all int
	for _, r := range records {
		// Placement puts no replica on such a node.
		if r.State != pb.NodeState_NODE_STATE_ACTIVE || r.GoneSince != 0 {
			continue
		}
		// all counts the nodes that may hold replicas now, others those that may after the drain.
		if all++; r.NodeId != id {
			others++
		}
	}
	p, err := s.cfg.View.Read(ctx)
	if err != nil {
		return err
	}
	// The target is odd: on two nodes a tablet has one replica, so one of the two may be drained;
	// of three nodes with three replicas none may.
	if want := placement.Target(int(p.GetReplicas()), all); all > others && others < want {
		return refuse("node %d can't be drained: every tablet has %d replicas on as many nodes, "+
			"and only %d other live nodes may hold one; add a node first",
			id, want, others)
	}
	return nil
}

const (
	// forgetTimeout limits ForgetNode's wait until meta has recorded that the node is gone. It is
	// less than a client's RPC timeout, 10 s, so that the client gets the answer.
	forgetTimeout = 6 * time.Second
	forgetPause   = 200 * time.Millisecond
)

// ForgetNode implements pb.AdminServer. It rejects a node that this one considers alive. For a
// node that has just stopped it waits, for at most forgetTimeout, until meta's leader has recorded
// that.
func (s *Service) ForgetNode(ctx context.Context,
	req *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	if m, alive := s.cfg.Members.Member(req.NodeId); alive {
		return nil, refuse("node %d is alive, at %s: drain and stop it first; a killed node "+
			"counts as alive for a few seconds more", m.NodeID, m.Listen)
	}
	return &pb.ForgetNodeResponse{}, retryUntilAway(ctx, func() error {
		return s.cfg.Nodes.ForgetNode(ctx, req.NodeId)
	})
}

// retryUntilAway repeats forget while it returns ErrNotAway, for forgetTimeout.
func retryUntilAway(ctx context.Context, forget func() error) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	for {
		err := forget()
		if !errors.Is(err, meta.ErrNotAway) || txn.Sleep(ctx, forgetPause) != nil {
			return err
		}
	}
}

// MergeTablets implements pb.AdminServer. It waits for placement to move the replicas of both
// tablets to the same nodes, and returns the merged tablet.
func (s *Service) MergeTablets(ctx context.Context,
	req *pb.MergeTabletsRequest) (*pb.MergeTabletsResponse, error) {
	d, err := s.cfg.Merges.MergeTablets(ctx, req.Table, wire.String(req.Row), s.cfg.Node.Place)
	return &pb.MergeTabletsResponse{Tablet: d}, err
}

// MoveTablet implements pb.AdminServer. The order is in meta when it returns; placement carries
// it out, and the response is the tablet before the move.
func (s *Service) MoveTablet(ctx context.Context,
	req *pb.MoveTabletRequest) (*pb.MoveTabletResponse, error) {
	d, err := s.cfg.Moves.OrderMove(ctx, req)
	if err != nil {
		return nil, err
	}
	s.cfg.Node.Place()
	return &pb.MoveTabletResponse{Tablet: d}, nil
}
