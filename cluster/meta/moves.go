package meta

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// Operators' orders to move a replica or a leadership, at most one per tablet. OrderMove runs on
// the goroutine of an Admin call on any node; placement, on the node that leads meta, reads the
// orders in each turn, carries them out and ends them. An order survives every process in
// between.

// prefixMove is the prefix of the rows of orders, at most one per tablet: the original request.
const prefixMove = "move/"

// Moves are operators' orders to move replicas and leaderships.
type Moves struct {
	records
	nodes *NodeTable
}

// Reasons to reject an order to move a tablet. Each comes with a txn.ServerError with details;
// ErrNoNode is another.
var (
	// ErrNoTablet reports that the tablet is not in the tablet map.
	ErrNoTablet = errors.New("meta: no such tablet")
	// ErrCannotMove reports that the current replicas and nodes do not allow the move, or that
	// placement would undo it at once.
	ErrCannotMove = errors.New("meta: the move cannot be made")
	// ErrOrdered reports that another move of the tablet is under way.
	ErrOrdered = errors.New("meta: another move of the tablet is under way")
)

// moveRow returns the row of the order for a tablet.
func moveRow(tablet uint64) string { return prefixMove + strconv.FormatUint(tablet, 10) }

// OrderMove orders the move of a replica of a tablet, or of its leadership. It returns the tablet
// from the tablet map, before the move. Placement carries the order out, even if the leadership
// of meta changes. The call may be repeated. Errors: ErrNoTablet, ErrNoNode, ErrCannotMove,
// ErrOrdered.
func (m *Moves) OrderMove(ctx context.Context,
	req *pb.MoveTabletRequest) (d *pb.TabletDescriptor, err error) {
	// A copy of the known fields: it is compared with stored orders.
	order := &pb.MoveTabletRequest{
		TabletId: req.TabletId, FromNode: req.FromNode, ToNode: req.ToNode, Leader: req.Leader,
	}
	_, err = update(ctx, m.records, moveRow(req.TabletId),
		func(have *pb.MoveTabletRequest) (*pb.MoveTabletRequest, []change, error) {
			var old []byte
			d, old, err = load[*pb.TabletDescriptor](ctx, m.records, tabletRow(req.TabletId))
			switch {
			case err != nil:
				return nil, nil, err
			case old == nil:
				return nil, nil, refuseAs(ErrNoTablet, "there is no tablet %d", req.TabletId)
			// The same order again, perhaps after a lost response.
			case proto.Equal(have, order):
				return have, nil, nil
			case have != nil:
				return nil, nil, refuseAs(ErrOrdered, "another move of tablet %d is under way",
					req.TabletId)
			}
			// On condition that the tablet's replicas are still those that were checked.
			same := change{row: tabletRow(req.TabletId), old: old, keep: true}
			return order, []change{same}, m.checkMove(ctx, d, req)
		})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// checkMove rejects a move that the current state does not allow. Placement checks again when it
// executes the move.
func (m *Moves) checkMove(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.MoveTabletRequest) error {
	nodes, err := m.nodes.Nodes(ctx)
	if err != nil {
		return err
	}
	byID := map[uint64]*wire.NodeRecord{}
	for _, n := range nodes {
		byID[n.NodeId] = n
	}
	to, from := byID[req.ToNode], byID[req.FromNode]
	switch {
	case to == nil:
		return refuseAs(ErrNoNode, "there is no node %d", req.ToNode)
	case to.State != pb.NodeState_NODE_STATE_ACTIVE:
		return refuseAs(ErrCannotMove, "node %d is %s: only an active node can receive a replica or lead", req.ToNode,
			wire.NodeStateName(to.State))
	case to.GoneSince != 0:
		return refuseAs(ErrCannotMove, "node %d is not alive, so nothing can be moved to it", req.ToNode)
	}
	// A leadership moves to an existing voting replica; no replica is created.
	if req.Leader {
		if r := wire.ReplicaOn(d, req.ToNode); r == nil || r.Learner || r.Outgoing {
			return refuseAs(ErrCannotMove,
				"node %d has no voting replica of tablet %d, so it cannot lead it", req.ToNode,
				d.TabletId)
		}
		return nil
	}
	if from == nil {
		return refuseAs(ErrNoNode, "there is no node %d", req.FromNode)
	}
	if r := wire.ReplicaOn(d, req.FromNode); r == nil || r.Learner || r.Outgoing {
		return refuseAs(ErrCannotMove, "node %d has no voting replica of tablet %d", req.FromNode,
			d.TabletId)
	}
	if wire.ReplicaOn(d, req.ToNode) != nil {
		return refuseAs(ErrCannotMove,
			"node %d already has a replica of tablet %d: a node holds at most one", req.ToNode,
			d.TabletId)
	}
	return checkZone(d, byID, from, to)
}

// checkZone rejects a move into a zone that would then have more replicas than the source zone has now:
// placement, whose first rule is to spread zones, would undo it.
func checkZone(d *pb.TabletDescriptor, nodes map[uint64]*wire.NodeRecord, from,
	to *wire.NodeRecord) error {
	inZone := func(zone string) (n int) {
		for _, r := range d.Replicas {
			// Learners do not vote yet, and the moving replica leaves its zone.
			if !r.Learner && r.NodeId != from.NodeId &&
				nodes[r.NodeId].GetLabels()["zone"] == zone {
				n++
			}
		}
		return n
	}
	if zone := to.Labels["zone"]; inZone(zone) > inZone(from.Labels["zone"]) {
		return refuseAs(ErrCannotMove,
			"zone %q would have %d replicas of tablet %d: replicas are spread over zones", zone,
			inZone(zone)+1, d.TabletId)
	}
	return nil
}

// MoveOrders returns the pending orders in the order of rows.
func (m *Moves) MoveOrders(ctx context.Context) ([]*pb.MoveTabletRequest, error) {
	return list[*pb.MoveTabletRequest](ctx, m.records, prefixMove)
}

// EndMove removes an order that is completed or can no longer be carried out. If another order
// has replaced it, that one stays, without an error.
func (m *Moves) EndMove(ctx context.Context, order *pb.MoveTabletRequest) error {
	value, err := encode(order)
	if err != nil {
		return err
	}
	_, err = m.swap(ctx, change{row: moveRow(order.TabletId), old: value})
	return err
}
