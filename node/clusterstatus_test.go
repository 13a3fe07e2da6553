package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/health"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// diagnosed waits until the cluster's status, from the node, has a finding of the kind.
func diagnosed(ctx context.Context, t *testing.T, n *node.Node,
	kind string) (found *pb.Finding, status *pb.ClusterStatusResponse) {
	t.Helper()
	awaitTrue(ctx, t, "a finding "+kind, func() bool {
		var err error
		if status, err = handle.Client(n.DB()).Admin().ClusterStatus(ctx,
			&pb.ClusterStatusRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, f := range status.Findings {
			if f.Kind == kind {
				found = f
				return true
			}
		}
		return false
	})
	return found, status
}

// TestClusterStatus: any node reports the faults of a damaged cluster, with a quorum and without.
func TestClusterStatus(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	input := percolator.Column{Table: "input", Name: "c"}
	r := three(ctx, t, 3, func(_ int, c *node.Config) {
		c.Placement.GoneAfter = time.Hour
		c.Observers = func(r *percolator.Registry) {
			r.Strong("broken", input, func(context.Context, *percolator.Tx,
				percolator.Notification) error {
				return errors.New("no")
			}, percolator.MaxAttempts(1))
		}
	})
	asked := r.nodes[2]
	var sound *pb.ClusterStatusResponse
	awaitTrue(ctx, t, "a sound cluster", func() bool {
		var err error
		sound, err = handle.Client(asked.DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
		return err == nil && len(sound.Nodes) == 3 && sound.Survives == 1
	})
	for _, x := range sound.Nodes {
		if x.Status == nil || x.Error != "" || x.ClockAheadMs != 0 {
			t.Errorf("node %d: error %q, clock %d ms", x.Node.NodeId, x.Error, x.ClockAheadMs)
		}
	}

	if err := set(ctx, asked.DB(), "row", input, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if f, _ := diagnosed(ctx, t, asked, health.ObserverParked); f.Subject != "observer broken" {
		t.Errorf("the finding is %v, want one of observer broken", f)
	}

	leaveOldLock(ctx, t, asked)
	diagnosed(ctx, t, asked, health.LockOld)

	r.crash(0)
	away, status := diagnosed(ctx, t, asked, health.NodeAway)
	if away.Subject == "" || status.Survives != 0 {
		t.Errorf("%v; survives %d", away, status.Survives)
	}
	r.crash(1)
	lost, status := diagnosed(ctx, t, asked, health.NoQuorum)
	if lost.Severity != pb.Severity_SEVERITY_CRITICAL || status.Survives != -1 ||
		status.Findings[0].Severity != pb.Severity_SEVERITY_CRITICAL {
		t.Errorf("%v; survives %d", status.Findings, status.Survives)
	}
}

// leaveOldLock leaves the lock of a transaction that began two minutes ago.
func leaveOldLock(ctx context.Context, t *testing.T, n *node.Node) {
	t.Helper()
	client := handle.Client(n.DB())
	now, err := client.Timestamp(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := client.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cell := mvcc.Cell{Row: "locked", Column: "v"}
	for _, table := range tables {
		if table.Name == workload.Table {
			cell.Table = mvcc.TableID(table.Id)
		}
	}
	answer, _, err := client.Send(ctx, wire.Position{Table: cell.Table, Row: cell.Row},
		&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(mvcc.TimestampAt(now.Millis() - 120_000)), Primary: wire.CellPB(cell),
			Expiry: uint64(mvcc.TimestampAt(now.Millis() + 60_000)), Worker: &pb.Worker{},
			Writes: []*pb.CellWrite{
				{Cell: wire.CellPB(cell), Kind: pb.Kind_KIND_PUT, Value: []byte("x")},
			},
		}}})
	if err != nil || answer.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatal(answer, err)
	}
}
