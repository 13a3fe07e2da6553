package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

func nodeRecord(id, incarnation uint64) *wire.NodeRecord {
	return &wire.NodeRecord{
		NodeId: id, Incarnation: incarnation, Peer: fmt.Sprint("host:", id),
		Labels: map[string]string{"zone": "a"},
	}
}

// TestRegisterNode: an incarnation registers once or repeats its registration; an earlier one and
// another process are refused.
func TestRegisterNode(t *testing.T) {
	ctx := context.Background()
	_, m := newWorld(t)
	for range 2 {
		got, err := m.Nodes.RegisterNode(ctx, nodeRecord(11, 3), 100)
		if err != nil || got.State != pb.NodeState_NODE_STATE_ACTIVE || got.JoinedTs != 100 ||
			got.Labels["zone"] != "a" {
			t.Fatalf("%v, %v", got, err)
		}
	}
	other := nodeRecord(11, 3)
	other.Peer = "elsewhere:1"
	for _, c := range []struct {
		r    *wire.NodeRecord
		want error
	}{{nodeRecord(11, 2), cluster.ErrStaleIncarnation}, {other, cluster.ErrDuplicateNode}} {
		_, err := m.Nodes.RegisterNode(ctx, c.r, 200)
		var refused *txn.ServerError
		if !errors.Is(err, c.want) || !errors.As(err, &refused) {
			t.Errorf("%v: %v, want %v", c.r, err, c.want)
		}
	}
	for _, r := range []*wire.NodeRecord{nodeRecord(0, 1), nodeRecord(1, 0),
		{NodeId: 1, Incarnation: 1, Peer: string(make([]byte, maxNodeRecord))}} {
		if _, err := m.Nodes.RegisterNode(ctx, r, 200); err == nil {
			t.Errorf("node %d, incarnation %d was registered", r.NodeId, r.Incarnation)
		}
	}
	other.Incarnation = 4
	if got, err := m.Nodes.RegisterNode(ctx, other, 300); err != nil || got.JoinedTs != 100 ||
		got.Peer != other.Peer {
		t.Errorf("a restart elsewhere: %v, %v", got, err)
	}
	if _, err := m.Nodes.RegisterNode(ctx, nodeRecord(9, 1), 300); err != nil {
		t.Fatal(err)
	}
	all, err := m.Nodes.Nodes(ctx)
	if err != nil || len(all) != 2 || all[0].NodeId != 9 || all[1].Incarnation != 4 {
		t.Errorf("%v, %v", all, err)
	}
	if n, err := nodeIn(ctx, m, 12); n != nil || err != nil {
		t.Errorf("a node that never joined: %v, %v", n, err)
	}
}

// TestNodeState: states change only along the allowed transitions, survive a restart of the node,
// and a node recorded as gone becomes active when it is seen again.
func TestNodeState(t *testing.T) {
	const (
		active, draining = pb.NodeState_NODE_STATE_ACTIVE, pb.NodeState_NODE_STATE_DRAINING
		drained, gone    = pb.NodeState_NODE_STATE_DRAINED, pb.NodeState_NODE_STATE_GONE
	)
	ctx := context.Background()
	_, m := newWorld(t)
	if _, err := m.Nodes.SetNodeState(ctx, 11, draining); !errors.Is(err, ErrNoNode) {
		t.Errorf("an unknown node: %v", err)
	}
	register := func(incarnation uint64) *wire.NodeRecord {
		r, err := m.Nodes.RegisterNode(ctx, nodeRecord(11, incarnation), 100)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	register(1)
	if _, err := m.Nodes.SetNodeState(ctx, 11, drained, draining); !errors.Is(err, ErrNodeState) {
		t.Errorf("drained from active: %v", err)
	}
	for range 2 {
		if r, err := m.Nodes.SetNodeState(ctx, 11, draining, active); err != nil || r.State != draining {
			t.Errorf("%v, %v", r, err)
		}
	}
	if r := register(2); r.State != draining {
		t.Errorf("a restart ended the drain: %v", r)
	}
	if r, err := m.Nodes.SetNodeGone(ctx, 11, 1, 500); err != nil || r.GoneSince != 0 {
		t.Errorf("news of an earlier incarnation: %v, %v", r, err)
	}
	if r, err := m.Nodes.SetNodeGone(ctx, 11, 2, 500); err != nil || r.GoneSince != 500 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := m.Nodes.SetNodeState(ctx, 11, gone); err != nil {
		t.Fatal(err)
	}
	if r, err := m.Nodes.SetNodeGone(ctx, 11, 2, 0); err != nil || r.GoneSince != 0 || r.State != active {
		t.Errorf("seen again: %v, %v", r, err)
	}
	if _, err := m.Nodes.SetNodeGone(ctx, 11, 2, 700); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Nodes.SetNodeState(ctx, 11, gone); err != nil {
		t.Fatal(err)
	}
	if r := register(3); r.State != active || r.GoneSince != 0 {
		t.Errorf("back again: %v", r)
	}
}

// TestNodesRaced: concurrent writers of one record lose none of their changes.
func TestNodesRaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, m := newWorld(t)
	if _, err := m.Nodes.RegisterNode(ctx, nodeRecord(11, 1), 100); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = m.Nodes.SetNodeState(ctx, 11, pb.NodeState_NODE_STATE_DRAINING)
			case 1:
				_, err = m.Nodes.SetNodeGone(ctx, 11, 1, 77)
			case 2:
				_, err = m.Nodes.RegisterNode(ctx, nodeRecord(uint64(20+i), 1), 100)
			default:
				_, err = m.Nodes.Nodes(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := nodeRecord(11, 1)
	want.State, want.JoinedTs, want.GoneSince = pb.NodeState_NODE_STATE_DRAINING, 100, 77
	if got, err := nodeIn(ctx, m, 11); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if all, err := m.Nodes.Nodes(ctx); err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestDrainOutlivesARestart: a draining node that starts again keeps the number of replicas of its drain.
func TestDrainOutlivesARestart(t *testing.T) {
	ctx := context.Background()
	_, m := newWorld(t)
	_, first := m.Nodes.RegisterNode(ctx, nodeRecord(11, 1), 100)
	_, drain := m.Nodes.StartDrain(ctx, 11, 7)
	r, again := m.Nodes.RegisterNode(ctx, nodeRecord(11, 2), 200)
	if err := errors.Join(first, drain, again); err != nil || r.DrainReplicas != 7 {
		t.Errorf("%v, %v", r, err)
	}
}

// nodeIn returns a node's record in the node table, or nil.
func nodeIn(ctx context.Context, m *Meta, id uint64) (*wire.NodeRecord, error) {
	all, err := m.Nodes.Nodes(ctx)
	for _, n := range all {
		if n.NodeId == id {
			return n, err
		}
	}
	return nil, err
}
