package meta

import (
	"context"
	"errors"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// only is a list of members set by the test.
type only struct {
	*cluster.Alone
	other cluster.Member
}

func (o only) Member(node uint64) (cluster.Member, bool) { return o.other, node == o.other.NodeID }

// TestRegistryRefusesCopies: a node id that is alive at another address is in use, whatever the
// incarnation; at the same address it is the same node's next process.
func TestRegistryRefusesCopies(t *testing.T) {
	_, m := newWorld(t)
	r := &Registry{
		Nodes: m.Nodes, Members: only{
			Alone: cluster.NewAlone(cluster.Member{}),
			other: cluster.Member{NodeID: 2, Incarnation: 4, Listen: "a:1", Gossip: "a:3"},
		},
		Now:    func(context.Context) (mvcc.Timestamp, error) { return 77, nil },
		Tablet: func() *pb.TabletDescriptor { return cluster.FirstTablets(1)[0] },
	}
	for _, tc := range []struct {
		node, incarnation uint64
		listen, gossip    string
		want              error
	}{
		{2, 4, "b:1", "b:3", cluster.ErrDuplicateNode},
		{2, 5, "b:1", "b:3", cluster.ErrDuplicateNode},
		{2, 5, "a:1", "b:3", cluster.ErrDuplicateNode},
		{2, 5, "a:1", "a:3", nil},
		{2, 5, "a:1", "a:3", nil},
		{2, 4, "a:1", "a:3", cluster.ErrStaleIncarnation},
		{3, 1, "c:1", "c:3", nil},
		{3, 1, "d:1", "d:3", cluster.ErrDuplicateNode},
	} {
		err := r.Register(t.Context(), &wire.NodeRecord{
			NodeId: tc.node, Incarnation: tc.incarnation, Listen: tc.listen, Gossip: tc.gossip,
		})
		if !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	c, err := r.Contacts(t.Context())
	if err != nil || len(c.Nodes) != 2 || c.Meta.GetTabletId() != cluster.MetaTablet {
		t.Errorf("%v, %v", c, err)
	}
}
