package meta

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// movable is a meta with nodes 1 to 6, in zones a, a, b, c, a and c; 5 is draining, 6 is absent;
// tablet 2 is on 1, 3 and 4.
func movable(t *testing.T) (*world, *Meta) {
	t.Helper()
	ctx := context.Background()
	w, m := newWorld(t)
	for i, zone := range []string{"a", "a", "b", "c", "a", "c"} {
		r := nodeRecord(uint64(i)+1, 1)
		r.Labels = map[string]string{"zone": zone}
		if _, err := m.Nodes.RegisterNode(ctx, r, 100); err != nil {
			t.Fatal(err)
		}
	}
	_, drain := m.Nodes.SetNodeState(ctx, 5, pb.NodeState_NODE_STATE_DRAINING)
	_, gone := m.Nodes.SetNodeGone(ctx, 6, 1, 50)
	report := m.Tablets.Report(ctx, &pb.TabletDescriptor{TabletId: 2, Epoch: 4, Replicas: []*pb.Replica{
		{ReplicaId: 1, NodeId: 1}, {ReplicaId: 2, NodeId: 3}, {ReplicaId: 3, NodeId: 4},
	}})
	if err := errors.Join(drain, gone, report); err != nil {
		t.Fatal(err)
	}
	return w, m
}

// TestOrderMove: a possible move is recorded, one per tablet; an impossible one is refused with a
// reason.
func TestOrderMove(t *testing.T) {
	ctx := context.Background()
	_, m := movable(t)
	move := func(tablet, from, to uint64) *pb.MoveTabletRequest {
		return &pb.MoveTabletRequest{TabletId: tablet, FromNode: from, ToNode: to}
	}
	for name, c := range map[string]struct {
		req  *pb.MoveTabletRequest
		want error
	}{
		"no such tablet":      {move(9, 1, 2), ErrNoTablet},
		"no such node":        {move(2, 1, 9), ErrNoNode},
		"from no node":        {move(2, 9, 2), ErrNoNode},
		"not there":           {move(2, 2, 2), ErrCannotMove},
		"two on one node":     {move(2, 1, 3), ErrCannotMove},
		"to itself":           {move(2, 1, 1), ErrCannotMove},
		"to one that drains":  {move(2, 1, 5), ErrCannotMove},
		"to one that is away": {move(2, 4, 6), ErrCannotMove},
		"into another's zone": {move(2, 3, 2), ErrCannotMove},
		"leader without a vote": {
			&pb.MoveTabletRequest{TabletId: 2, ToNode: 2, Leader: true}, ErrCannotMove,
		},
	} {
		_, err := m.Moves.OrderMove(ctx, c.req)
		var refused *txn.ServerError
		if !errors.Is(err, c.want) || !errors.As(err, &refused) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for range 2 {
		if d, err := m.Moves.OrderMove(ctx, move(2, 1, 2)); err != nil || d.Epoch != 4 {
			t.Fatalf("%v, %v", d, err)
		}
	}
	if _, err := m.Moves.OrderMove(ctx, &pb.MoveTabletRequest{TabletId: 2, ToNode: 4,
		Leader: true}); !errors.Is(err, ErrOrdered) {
		t.Errorf("a second order: %v", err)
	}
	orders, err := m.Moves.MoveOrders(ctx)
	if err != nil || len(orders) != 1 || !proto.Equal(orders[0], move(2, 1, 2)) {
		t.Fatalf("%v, %v", orders, err)
	}
	if err := errors.Join(m.Moves.EndMove(ctx, move(2, 1, 4)), m.Moves.EndMove(ctx, move(2, 1, 2)),
		m.Moves.EndMove(ctx, move(2, 1, 2))); err != nil {
		t.Error(err)
	}
	if orders, err := m.Moves.MoveOrders(ctx); err != nil || len(orders) != 0 {
		t.Errorf("done, and still there: %v, %v", orders, err)
	}
}

// TestOrderMoveRaced: replicas that change while a move is checked are read again.
func TestOrderMoveRaced(t *testing.T) {
	ctx := context.Background()
	w, m := movable(t)
	raced := false
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse,
		error) {
		if req.GetRawWrite() != nil && !raced {
			raced = true
			d := &pb.TabletDescriptor{
				TabletId: 2, Epoch: 5, Replicas: []*pb.Replica{{ReplicaId: 4, NodeId: 2}},
			}
			if err := m.Tablets.Report(ctx, d); err != nil {
				t.Error(err)
			}
		}
		return w.send(ctx, tablet, req)
	}
	if _, err := m.Moves.OrderMove(ctx, &pb.MoveTabletRequest{TabletId: 2, FromNode: 1,
		ToNode: 2}); !errors.Is(err, ErrCannotMove) {
		t.Errorf("%v: node 1 has no replica any more", err)
	}
	if wire.ReplicaOn(&pb.TabletDescriptor{}, 1) != nil {
		t.Error("a replica of nothing")
	}
}
