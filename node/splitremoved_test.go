package node

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// TestRunningNodeClearsARemovedSide: the right side's replica of a split was removed from this node
// before the split arrived here. Its rows and the marker are removed while the node runs, not at
// its next start, and the range is free for a new replica.
func TestRunningNodeClearsARemovedSide(t *testing.T) {
	n, ctx := openForReopen(t)
	column := percolator.Column{Table: "t", Name: "c"}
	if err := n.DB().CreateTable(ctx, percolator.TableSpec{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	err := n.DB().Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", column, []byte("v"))
		tx.Set("z", column, []byte("v"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	id, err := n.client.TableID(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	key := func(row string) []byte {
		return store.AppendKey(nil, mvcc.GroupWrite, mvcc.Cell{Table: id, Row: row, Column: "c"}, 0)
	}
	there := func(row string) bool {
		snap := n.store.Snap()
		defer snap.Close()
		_, ok, err := snap.Get(key(row))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for !there("a") || !there("z") { // the commit is answered before its effects are visible
		if ctx.Err() != nil {
			t.Fatal("the rows are not where the test looks for them")
		}
	}
	const right = 777
	tombstone, err := proto.Marshal(&wire.Tombstone{NextReplicaId: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := &store.Batch{}
	b.PutTombstone(right, tombstone)
	if err := n.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	left := n.router.Locate(id, "z", 1)[0]
	r, err := n.carrier.Send(ctx, left, &pb.TabletRequest{TabletId: left.TabletId,
		Epoch: left.Epoch, Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: uint32(id), Row: wire.Bytes("m"), NewTabletId: right},
		}})
	if err != nil || r.GetError() != nil {
		t.Fatal(err, r)
	}
	marked := func() bool {
		stored, err := snapshot.StoredReplicas(n.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stored {
			if s.Tablet == right {
				return true
			}
		}
		return false
	}
	until(t, "the removed side is cleared", func() bool { return !marked() && !there("z") })
	if !there("a") || n.router.Port(right) != nil {
		t.Error("more was cleared, or a replica was made of what was removed")
	}
}
