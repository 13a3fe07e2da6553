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

// This file holds the orders to move replicas away from where they are, and to forget
// nodes that hold none. They are written into meta; placement, on the node that leads
// meta, carries them out.

// DrainNode implements pb.AdminServer. It refuses a drain that would leave too few nodes for
// the replicas.
func (s *Service) DrainNode(ctx context.Context,
	req *pb.DrainNodeRequest) (*pb.DrainNodeResponse, error) {
	r, err := s.setDrain(ctx, req)
	if err != nil {
		return nil, err
	}
	// A hint: without it placement would find the order in its next turn.
	s.cfg.Node.Place()
	return &pb.DrainNodeResponse{Node: nodesOf([]*pb.Node{nodePB(r)}, s.member(req.NodeId))[0]}, nil
}

// setDrain writes the order into meta.
func (s *Service) setDrain(ctx context.Context,
	req *pb.DrainNodeRequest) (*wire.NodeRecord, error) {
	if req.Undo { // never lacks room, so only a drain is checked
		return s.cfg.Nodes.SetNodeState(ctx, req.NodeId, pb.NodeState_NODE_STATE_ACTIVE,
			pb.NodeState_NODE_STATE_DRAINING, pb.NodeState_NODE_STATE_DRAINED)
	}
	if err := s.mayDrain(ctx, req.NodeId); err != nil {
		return nil, err
	}
	// How many there are to move, so that the job can say how far it has come. The map may be
	// a little old; drainJob makes up for it.
	replicas := uint32(0)
	for _, d := range s.cfg.Router.All() {
		for _, r := range d.GetReplicas() {
			if r.NodeId == req.NodeId {
				replicas++
			}
		}
	}
	return s.cfg.Nodes.StartDrain(ctx, req.NodeId, replicas)
}

// member returns what gossip says of the node, nothing if it is not alive.
func (s *Service) member(id uint64) []cluster.Member {
	if m, alive := s.cfg.Members.Member(id); alive {
		return []cluster.Member{m}
	}
	return nil
}

// mayDrain refuses a drain that could not end, because the other nodes are too few for
// the replicas that every tablet is to have.
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
		// all limits the replicas of a tablet now, others after the drain.
		if all++; r.NodeId != id {
			others++
		}
	}
	p, err := s.cfg.Node.ReadPolicy(ctx)
	if err != nil {
		return err
	}
	// The target is odd: on two nodes a tablet has one replica, so one of the two may be
	// drained; of three nodes that hold three replicas none may.
	if want := placement.Target(int(p.GetReplicas()), all); all > others && others < want {
		return refuse("node %d can't be drained: every tablet has %d replicas, on as many nodes, "+
			"and only %d other live nodes may hold one; add a node first",
			id, want, others)
	}
	return nil
}

const (
	// forgetTimeout bounds the wait of ForgetNode; the client's bound on a call is 10 s.
	forgetTimeout = 6 * time.Second
	forgetPause   = 200 * time.Millisecond
)

// ForgetNode implements pb.AdminServer. It refuses a node that this one believes alive. For a
// node that has just stopped it waits until meta's leader has recorded that.
func (s *Service) ForgetNode(ctx context.Context,
	req *pb.ForgetNodeRequest) (*pb.ForgetNodeResponse, error) {
	if m, alive := s.cfg.Members.Member(req.NodeId); alive {
		return nil, refuse("node %d is alive, at %s: drain and stop it first; a node that was killed "+
			"counts as alive for about two more seconds", m.NodeID, m.Listen)
	}
	return &pb.ForgetNodeResponse{}, retryNotAway(ctx, func() error {
		return s.cfg.Nodes.ForgetNode(ctx, req.NodeId)
	})
}

// retryNotAway calls forget again while it returns ErrNotAway, for forgetTimeout.
func retryNotAway(ctx context.Context, forget func() error) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	for {
		err := forget()
		if !errors.Is(err, meta.ErrNotAway) || txn.Sleep(ctx, forgetPause) != nil {
			return err
		}
	}
}

// MergeTablets implements pb.AdminServer. It waits for placement to bring the replicas of both
// tablets together.
func (s *Service) MergeTablets(ctx context.Context,
	req *pb.MergeTabletsRequest) (*pb.MergeTabletsResponse, error) {
	d, err := s.cfg.Merges.MergeTablets(ctx, req.Table, wire.String(req.Row), s.cfg.Node.Place)
	if err != nil {
		return nil, err
	}
	return &pb.MergeTabletsResponse{Tablet: d}, nil
}

// MoveTablet implements pb.AdminServer. The order is in meta when it returns; placement
// carries it out, and the answer is the tablet as it is before.
func (s *Service) MoveTablet(ctx context.Context,
	req *pb.MoveTabletRequest) (*pb.MoveTabletResponse, error) {
	d, err := s.cfg.Moves.OrderMove(ctx, req)
	if err != nil {
		return nil, err
	}
	s.cfg.Node.Place()
	return &pb.MoveTabletResponse{Tablet: d}, nil
}
