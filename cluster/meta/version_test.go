package meta

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/internal/wire"
)

// TestRegisteredVersions: a node registers only if its build supports the cluster's version at that
// moment, and the version never decreases.
func TestRegisteredVersions(t *testing.T) {
	ctx := t.Context()
	w, m := newWorld(t)
	node := func(id uint64, oldest, newest version.Number) *wire.NodeRecord {
		return &wire.NodeRecord{
			NodeId: id, Incarnation: 1, Versions: wire.VersionsPB(version.Range{Oldest: oldest, Newest: newest}),
		}
	}
	register := func(r *wire.NodeRecord) error {
		_, err := m.Nodes.RegisterNode(ctx, r, 1)
		return err
	}
	agree := func(minimum, active version.Number) {
		t.Helper()
		p, err := m.Policy.Agree(ctx, version.Agreed{Minimum: minimum, Active: active})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("agreed: %v", p.Agreed)
	}
	// A cluster whose nodes joined before it had a policy may have nodes of any build.
	if err := register(node(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	p, err := m.Policy.Found(ctx, &pb.Policy{Agreed: wire.AgreedPB(version.Agreed{Minimum: 3, Active: 3})})
	if err != nil || p.Agreed != nil {
		t.Fatalf("founded beside a node: %v, %v", p.GetAgreed(), err)
	}
	if err := register(&wire.NodeRecord{NodeId: 2, Incarnation: 1}); err != nil {
		t.Errorf("a build without numbers: %v", err)
	}
	// The minimum is raised between a registration's check and its write.
	raised := false
	w.via = func(ctx context.Context, tablet uint64, req *pb.TabletRequest) (*pb.TabletResponse, error) {
		if req.GetRawWrite() != nil && !raised {
			raised = true
			agree(3, 0)
		}
		return w.send(ctx, tablet, req)
	}
	late := node(3, 2, 2)
	if err := register(late); !errors.Is(err, version.ErrIncompatible) {
		t.Errorf("REGISTERED-BELOW-MINIMUM: %v", err)
	}
	w.via = w.send
	if err := register(node(4, 7, 8)); !errors.Is(err, version.ErrIncompatible) {
		t.Errorf("a build that does not know the active version: %v", err)
	}
	if err := register(node(5, 2, 3)); err != nil {
		t.Error(err)
	}
	agree(0, 3)
	agree(2, 2)
	p, err = m.Policy.Set(ctx, &pb.Policy{
		Replicas: proto.Uint64(5), Agreed: wire.AgreedPB(version.Agreed{Minimum: 9, Active: 9}),
	})
	if err != nil || wire.Agreed(p.Agreed) != (version.Agreed{Minimum: 3, Active: 3}) {
		t.Errorf("what is agreed on: %v, %v", p.GetAgreed(), err)
	}
}
