package node_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// TestNodesOfOneAlone: a node without gossip lists itself as one with gossip does: it leads meta,
// and holds and leads two tablets.
func TestNodesOfOneAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	n := open(t, t.TempDir(), func(c *node.Config) { c.Peer, c.Gossip = "", "" })
	awaitTrue(ctx, t, "the node says what it does", func() bool {
		r, err := handle.Client(n.DB()).Admin().Nodes(ctx, &pb.NodesRequest{})
		if err != nil || len(r.Nodes) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
		self := r.Nodes[0]
		return self.Alive && self.LeadsMeta && self.Replicas == 2 && self.Leaders == 2 &&
			self.DiskFree > 0
	})
}
