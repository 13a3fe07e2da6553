package meta

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// nodeDirectory is the directory of a node, in which processes are started.
type nodeDirectory struct {
	*testing.T
	store *store.Store
}

func newNodeDirectory(t *testing.T) *nodeDirectory {
	t.Helper()
	st, err := store.Open(store.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &nodeDirectory{t, st}
}

// start returns the membership of a process on the directory, and its registration.
func (d *nodeDirectory) start() (*join.Membership, join.Identity) {
	d.Helper()
	self, err := join.OpenSelf(d.store)
	if err == nil && self.Identity().Fresh() {
		err = self.Joined(&pb.JoinResponse{ClusterId: "c"})
	}
	if err != nil {
		d.Fatal(err)
	}
	return join.NewMembership(join.MembershipConfig{
		Self: self, Addresses: &pb.NodeAddresses{Listen: "a:1", Peer: "a:2", Gossip: "a:3"},
		Upkeep: time.Millisecond,
	}), self.Identity()
}

// TestForgottenIsRefused: an absent node without replicas is forgotten and frees a place. Its
// directory is never readmitted, with any incarnation, and a process that was only disconnected
// ends. Catches BROKEN=welcome_forgotten.
func TestForgottenIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	registry := &Registry{
		Nodes: m.Nodes, Members: cluster.NewAlone(cluster.Member{}),
		Now: func(context.Context) (mvcc.Timestamp, error) {
			return 77, nil
		},
		Tablet: func() *pb.TabletDescriptor { return cluster.FirstTablets(1)[0] },
	}
	directory := newNodeDirectory(t)
	d, self := directory.start()
	if err := d.Register(ctx, registry); err != nil {
		t.Fatal(err)
	}
	id := self.NodeID
	refused := func(what string, err error, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("nobody", m.Nodes.ForgetNode(ctx, 4711), ErrNoNode)
	refused("alive", m.Nodes.ForgetNode(ctx, id), ErrNotAway)
	if _, err := m.Nodes.SetNodeGone(ctx, id, self.Incarnation, 99); err != nil {
		t.Fatal(err)
	}
	held := &pb.TabletDescriptor{
		TabletId: 9, Epoch: 1, Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: id, Learner: true}},
	}
	if err := m.Tablets.Report(ctx, held); err != nil {
		t.Fatal(err)
	}
	refused("holding a replica", m.Nodes.ForgetNode(ctx, id), ErrNodeInUse)
	if err := m.Tablets.Report(ctx, &pb.TabletDescriptor{TabletId: 9, Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call finds it done
		if err := m.Nodes.ForgetNode(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if nodes, err := m.Nodes.Nodes(ctx); err != nil || len(nodes) != 0 {
		t.Errorf("nodes are left: %v, %v", nodes, err)
	}
	again, _ := directory.start()
	if err := again.Register(ctx, registry); !errors.Is(err, cluster.ErrForgotten) {
		t.Fatalf("WELCOME-FORGOTTEN: its directory was admitted: %v", err)
	}
	// The process itself, which was disconnected, learns of it at its next upkeep.
	if err := d.Upkeep(ctx, registry); !errors.Is(err, cluster.ErrForgotten) {
		t.Errorf("a process of it continues: %v", err)
	}
	if _, err := m.Nodes.RegisterNode(ctx, &wire.NodeRecord{NodeId: id + 1, Incarnation: 1},
		100); err != nil {
		t.Errorf("another node: %v", err)
	}
}

// TestForgettingMakesRoom: any number of nodes can come and go.
func TestForgettingMakesRoom(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, m := newWorld(t)
	for id := uint64(1); id <= cluster.MaxNodes; id++ {
		if _, err := m.Nodes.RegisterNode(ctx, &wire.NodeRecord{NodeId: id, Incarnation: 1},
			id); err != nil {
			t.Fatal(err)
		}
	}
	one := &wire.NodeRecord{NodeId: cluster.MaxNodes + 1, Incarnation: 1}
	if _, err := m.Nodes.RegisterNode(ctx, one, 1); err == nil {
		t.Fatal("one node too many")
	}
	if _, err := m.Nodes.SetNodeGone(ctx, 5, 1, 99); err != nil {
		t.Fatal(err)
	}
	if err := m.Nodes.ForgetNode(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Nodes.RegisterNode(ctx, one, 1); err != nil {
		t.Errorf("there is space again: %v", err)
	}
}
