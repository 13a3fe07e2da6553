package node_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/gossip"
	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/version"
)

// TestOutlivesACopy: a copy of a node's directory that has been started often joins gossip for a
// while, and has a higher incarnation than the node. The node must end; the copy is removed, and
// the node returns. The others, which have seen the copy die, must readmit it.
func TestOutlivesACopy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	j := &joiner{t, memlink.NewNetwork()}
	dirs := t.TempDir()
	a := j.must(filepath.Join(dirs, "a"))
	b := j.must(filepath.Join(dirs, "b"), a.Addr())
	id := b.Status().NodeId
	awaitNodes(ctx, t, a, id, 1)
	awaitNodes(ctx, t, b, a.Status().NodeId, 1)
	r, err := handle.Client(a.DB()).Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, n := range r.Nodes {
		known = append(known, n.Gossip)
	}
	l, err := gossip.Listen("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	theCopy, err := gossip.Open(gossip.Config{
		ClusterID: a.Status().ClusterId,
		Self: cluster.Member{
			NodeID: id, Incarnation: 9, Listen: "127.0.0.1:1", Versions: version.Known(),
		},
		Known: func() []string { return known },
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case why := <-b.Failed():
		if !errors.Is(why, cluster.ErrStaleIncarnation) {
			t.Errorf("it must end because of %v", why)
		}
	case <-ctx.Done():
		t.Fatal("the node is not told of the copy")
	}
	j.close(b)
	if err := theCopy.Close(); err != nil {
		t.Fatal(err)
	}
	b = j.must(filepath.Join(dirs, "b"))
	awaitNodes(ctx, t, a, id, b.Status().Incarnation)
	if got := b.Status().Incarnation; got <= 9 {
		t.Errorf("came back as incarnation %d", got)
	}
}
