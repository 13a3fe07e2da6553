package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/node"
)

// changeReplicas makes the tablet's leader change its replicas, and retries while another change is
// in progress.
func changeReplicas(ctx context.Context, t *testing.T, db *percolator.DB, tablet uint64,
	kind pb.ReplicaChange_Kind, node uint64) *pb.TabletDescriptor {
	t.Helper()
	transport := handle.Client(db).Transport()
	last := ""
	for ctx.Err() == nil {
		d := describe(ctx, t, db, tablet)
		r, err := transport.Send(ctx, d, &pb.TabletRequest{
			TabletId: tablet, Epoch: d.Epoch,
			Op: &pb.TabletRequest_ChangeReplicas{ChangeReplicas: &pb.ChangeReplicasRequest{
				Changes: []*pb.ReplicaChange{{Kind: kind, NodeId: node}},
			}},
		})
		switch {
		case err != nil:
			last = err.Error()
		case r.GetError() != nil:
			last = r.Error.Message
		default:
			return r.GetChangeReplicas().GetTablet()
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("tablet %d, %v on node %d: %s", tablet, kind, node, last)
	return nil
}

// describe finds the tablet in the map.
func describe(ctx context.Context, t *testing.T, db *percolator.DB,
	tablet uint64) *pb.TabletDescriptor {
	t.Helper()
	all, err := handle.Client(db).Transport().Locate(ctx, 0, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.TabletId == tablet {
			return d
		}
	}
	t.Fatalf("no tablet %d in %v", tablet, all)
	return nil
}

// TestReplicasByLearners: a tablet with rows gets replicas on other nodes, which start from a
// snapshot, catch up, and equal the first one, entry by entry, during writes; then it loses one
// again.
func TestReplicasByLearners(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// Placement would add the replicas itself, before the test does.
	r := newRig(t, 3, func(_ int, c *node.Config) { c.Placement.Off = true })
	db := r.nodes[0].DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	column := percolator.Column{Table: "t", Name: "c"}
	write := func(from, to int) {
		for i := from; i < to; i += 50 {
			err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
				for j := i; j < min(i+50, to); j++ {
					tx.Set(fmt.Sprintf("r%05d", j), column, []byte(strings.Repeat("v", 1+j%3000)))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 1500)
	all, err := handle.Client(db).Transport().Locate(ctx, 16, "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	tablet := all[0].TabletId
	for _, n := range r.nodes[1:] {
		id := n.Status().NodeId
		changeReplicas(ctx, t, db, tablet, pb.ReplicaChange_KIND_ADD_LEARNER, id)
		write(1500, 1700)
		changeReplicas(ctx, t, db, tablet, pb.ReplicaChange_KIND_PROMOTE, id)
	}
	write(1700, 1900)
	v, err := handle.Client(db).Admin().VerifyTablet(ctx, &pb.VerifyTabletRequest{TabletId: tablet})
	if err != nil {
		t.Fatal(err)
	}
	if !v.Equal || len(v.Replicas) != 3 {
		t.Fatalf("the comparison is %v, want 3 equal replicas", v)
	}
	t.Logf("%d entries, checksum %x", v.Replicas[0].Result.Entries, v.Replicas[0].Result.Checksum)
}
