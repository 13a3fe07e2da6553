package node_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
)

// TestReplicaFallsBehind: a node that has missed more than the log keeps receives a snapshot when
// it returns, and then holds the same entries as the others.
func TestReplicaFallsBehind(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	r := newRig(t, 3, nil)
	db := r.nodes[0].DB()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	all, err := handle.Client(db).Transport().Locate(ctx, 16, "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	tablet := all[0].TabletId
	r.voters(ctx, t, tablet, 3)
	r.stop(2)
	column := percolator.Column{Table: "t", Name: "c"}
	value := make([]byte, 1<<20)
	for i := range 41 { // more than the log keeps for an absent replica, and one that causes its truncation
		if i == 40 {
			for _, n := range r.nodes[:2] {
				if err := n.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
		}
		err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(fmt.Sprintf("r%05d", i), column, value)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.start(2)
	began := time.Now()
	v := r.verified(ctx, t, tablet)
	if !v.Equal || len(v.Replicas) != 3 {
		t.Fatal(v)
	}
	t.Logf("%d entries, equal after %v", v.Replicas[0].Result.Entries, time.Since(began))
	var sent, installed float64
	for _, n := range r.nodes {
		m, err := n.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		sent += m["percolator_snapshot_sent_total"]
		if n == r.nodes[2] {
			installed = m["percolator_snapshot_installed_total"]
		}
	}
	if sent == 0 || installed == 0 {
		t.Errorf("the log was sent: %v snapshots were sent, %v installed on the node that had fallen behind", sent, installed)
	}
}

// verified compares the replicas of a tablet, repeatedly while one of them does not answer in time.
func (r *rig) verified(ctx context.Context, t *testing.T, tablet uint64) *pb.VerifyTabletResponse {
	t.Helper()
	for {
		v, err := handle.Client(r.nodes[0].DB()).Admin().VerifyTablet(ctx,
			&pb.VerifyTabletRequest{TabletId: tablet})
		if err == nil && !slices.ContainsFunc(v.Replicas, func(one *pb.ReplicaChecksum) bool {
			return one.Error != ""
		}) {
			return v
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not verified: %v, %v", v, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// voters waits until the tablet has n voters and no change is in progress.
func (r *rig) voters(ctx context.Context, t *testing.T, tablet uint64, want int) {
	t.Helper()
	for {
		n, d := 0, describe(ctx, t, r.nodes[0].DB(), tablet)
		for _, replica := range d.Replicas {
			if !replica.Learner && !replica.Incoming && !replica.Outgoing {
				n++
			}
		}
		if n == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d voters: %v", n, d)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
