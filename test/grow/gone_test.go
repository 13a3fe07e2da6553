package grow_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/test/cluster"
)

// TestGone: one of four processes is killed and stays down. Its replicas are recreated on the
// others, under writes, without an error for a caller with a timeout of patience. Then it returns
// with its old store: replicas that were replaced are removed, and it gets its share again.
func TestGone(t *testing.T) {
	if os.Getenv("GROW") == "" {
		t.Skip("minutes: make grow runs it")
	}
	ctx := t.Context()
	c, db := start(ctx, t, cluster.Config{Nodes: 4, Args: []string{"--replace-dead-after", "15s"}})
	fill(ctx, t, db)
	await(ctx, t, db, c.Nodes())
	w := startCallers(ctx, t, db)
	lost := c.Node(0)
	id := lookAt(ctx, t, db, lost).GetNodeId()
	if err := lost.Kill(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	poll(ctx, t, "everything that the lost node had is elsewhere", func() string {
		return unreplaced(ctx, db, id)
	})
	poll(ctx, t, "the lost node is gone", func() string {
		if n := lookAt(ctx, t, db, lost); n.GetState() != pb.NodeState_NODE_STATE_GONE {
			return fmt.Sprint(n)
		}
		return ""
	})
	t.Logf("all tablets have %d voters elsewhere after %v", voters,
		time.Since(began).Round(100*time.Millisecond))
	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	await(ctx, t, db, c.Nodes())
	poll(ctx, t, "nobody holds more than the tablets' replicas", func() string {
		r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
		sum := 0
		for _, n := range r.GetNodes() {
			sum += int(n.Replicas)
		}
		all, errLocate := handle.Client(db).Transport().Locate(ctx, mvcc.MetaTable, "", 1000)
		if err != nil || errLocate != nil || sum != voters*len(all) {
			return fmt.Sprintf("%d replicas of %d tablets: %v, %v", sum, len(all), err, errLocate)
		}
		return ""
	})
	w.end(ctx)
	verify(ctx, t, db)
}

// unreplaced names a tablet with a replica on the node, or without three voters; empty: there is
// none.
func unreplaced(ctx context.Context, db *percolator.DB, node uint64) string {
	all, err := handle.Client(db).Transport().Locate(ctx, mvcc.MetaTable, "", 1000)
	if err != nil || len(all) < tablets+1 {
		return fmt.Sprintf("%d tablets: %v", len(all), err)
	}
	for _, d := range all {
		for _, r := range d.Replicas {
			if r.NodeId == node || r.Learner || r.Incoming || r.Outgoing {
				return fmt.Sprintf("tablet %d: %v", d.TabletId, d.Replicas)
			}
		}
		if len(d.Replicas) != voters {
			return fmt.Sprintf("tablet %d: %v", d.TabletId, d.Replicas)
		}
	}
	return ""
}

// lookAt returns the cluster's status of the node, or nil.
func lookAt(ctx context.Context, t *testing.T, db *percolator.DB, p *cluster.Process) *pb.Node {
	t.Helper()
	r, err := handle.Client(db).Admin().Nodes(ctx, &pb.NodesRequest{})
	if err != nil {
		t.Log(err)
	}
	for _, n := range r.GetNodes() {
		if n.Listen == p.Listen {
			return n
		}
	}
	return nil
}

// poll waits until why is empty.
func poll(ctx context.Context, t *testing.T, what string, why func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		not := why()
		if not == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not yet: %s: %s", what, not)
		}
	}
}
