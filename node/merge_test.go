package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/test/workload"
)

// TestMergesWhileWritten: tablets are split and merged repeatedly under transactions in all of
// them, on one node, three and four, where replicas must first be moved together. No commit is
// lost, every caller continues, and a restarted node has the same data as the others.
func TestMergesWhileWritten(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 3, 4} {
		t.Run(fmt.Sprintf("nodes=%d", size), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			r := newRig(t, size, func(_ int, c *node.Config) {
				c.Placement.Busy = 20 * time.Millisecond
			})
			db := r.nodes[0].DB()
			if err := db.CreateTable(ctx, percolator.TableSpec{Name: workload.Table}); err != nil {
				t.Fatal(err)
			}
			before := len(r.layout().tablets)
			r.placed(ctx, before, []int{1: 1, 3: 3, 4: 3}[size], seq(size)...)
			a := startAdders(t, 8, func() *percolator.DB { return db })
			client, operator := handle.Client(db), handle.Client(db).Admin()
			rows := []string{"40", "80", "c0"}
			for _, row := range rows {
				if err := client.Transport().SplitTablet(ctx, workload.Table, row); err != nil {
					t.Fatal(err)
				}
			}
			if size > 3 {
				r.apart(ctx, operator, workload.Table, "80")
			}
			for _, row := range rows {
				began := time.Now()
				_, err := operator.MergeTablets(ctx, &pb.MergeTabletsRequest{
					Table: workload.Table, Row: []byte(row),
				})
				for err != nil && ctx.Err() == nil {
					t.Logf("merge at %s: %v", row, err)
					_, err = operator.MergeTablets(ctx, &pb.MergeTabletsRequest{
						Table: workload.Table, Row: []byte(row),
					})
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("merged at %s after %v", row, time.Since(began))
			}
			a.stop()
			a.check(ctx, t, db)
			if n := len(r.layout().tablets); n != before {
				t.Errorf("%d tablets after all splits were merged, %d before", n, before)
			}
			last := size - 1
			r.stop(last)
			r.start(last)
			a.check(ctx, t, r.nodes[last].DB())
		})
	}
}

// TestDroppedTablesGiveTabletsBack: a writer's tables use up all tablets that the policy allows;
// once they are dropped the tablets are merged, and others can be created.
func TestDroppedTablesGiveTabletsBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	const most = 40
	n := open(t, t.TempDir(), func(c *node.Config) {
		c.Splits.MaxTablets, c.Splits.Interval = most, 100*time.Millisecond
	})
	db := n.DB()
	create := func(name string, keys ...string) error {
		return db.CreateTable(ctx, percolator.TableSpec{Name: name, SplitKeys: keys})
	}
	var err error
	made := 0
	for ; err == nil; made++ {
		err = create(fmt.Sprintf("t%d", made), "m")
	}
	made-- // the last one was refused
	if made < most/2-1 {
		t.Fatalf("%d tables of two tablets each, then %v", made, err)
	}
	for i := range made {
		if err := db.DropTable(ctx, fmt.Sprintf("t%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("own", "m"); err != nil {
		t.Errorf("dropped tables count: %v", err)
	}
	// Meta's tablet, one of the dropped tables, the one that the new table is cut from, and the new
	// table's two make five.
	const left = 6
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(n.Status().Tablets) > left {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d tablets are left", len(n.Status().Tablets))
		}
	}
}

// apart moves a replica of the tablet that begins at the row to a node without one, and waits for
// the end of the move.
func (r *rig) apart(ctx context.Context, operator pb.AdminClient, table, row string) {
	r.t.Helper()
	client := handle.Client(r.nodes[0].DB())
	id, err := client.TableID(ctx, table)
	if err != nil {
		r.t.Fatal(err)
	}
	locate := func() *pb.TabletDescriptor {
		held, err := client.Transport().Locate(ctx, id, row, 1)
		if err != nil || len(held) == 0 {
			r.t.Fatalf("%v, %v", held, err)
		}
		return held[0]
	}
	to := uint64(0)
	r.until(ctx, "the move is ordered", func() bool {
		d := locate() // placement may have moved a replica
		for i := range r.nodes {
			if wire.ReplicaOn(d, r.id(i)) == nil {
				to = r.id(i)
			}
		}
		_, err := operator.MoveTablet(ctx, &pb.MoveTabletRequest{
			TabletId: d.TabletId, FromNode: d.Replicas[0].NodeId, ToNode: to,
		})
		return err == nil
	})
	r.until(ctx, "a replica has moved", func() bool {
		now := locate()
		return len(now.Replicas) == 3 && wire.ReplicaOn(now, to) != nil
	})
}

// seq returns 0 to n-1.
func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}
