package replicas

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// freeze commits the effects of freezing a tablet.
func (r *replicaRig) freeze(id uint64, left *pb.TabletDescriptor) (frozen *pb.TabletDescriptor) {
	r.t.Helper()
	c, err := snapshot.Capture(r.store.Snap(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	c.Snap.Close()
	c.State.FrozenFor = left
	c.State.Tablet.Epoch++
	data, err := proto.Marshal(c.State)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &store.Batch{}
	b.PutTabletState(id, data)
	c.Applied.Epoch = c.State.Tablet.Epoch
	b.PutApplied(id, c.Applied)
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		r.t.Fatal(err)
	}
	return c.State.Tablet
}

func (r *replicaRig) merges(right, merged *pb.TabletDescriptor) {
	r.Set.Merge(&snapshot.Merge{
		Right: right, Merged: merged, Index: store.InitialIndex + 1, Term: store.InitialTerm,
	})
	r.settle()
}

// TestNotMergedBlindly: a replica reaches the entry by which its tablet takes another's rows, but
// the other's replica here is not in its frozen state: it stays closed, since it lacks some of
// these rows. Once the other is frozen, both become one without copying a row, and the other's
// replica never returns.
func TestNotMergedBlindly(t *testing.T) {
	left := of(2, 1, "a", "m", 1)
	r := newReplicaRig(t, left, of(3, 1, "m", "z", 1))
	b := &store.Batch{}
	for _, e := range rowsBetween(100, 5) {
		b.Put(e.Key, e.Value)
	}
	if err := r.store.StateWriter().Commit([]*store.Batch{b}); err != nil {
		t.Fatal(err)
	}
	merged := of(2, 3, "a", "z", 1)
	log := &raftlog.Batch{}
	log.Append(2, []*raftpb.Entry{{
		Index: proto.Uint64(store.InitialIndex + 1), Term: proto.Uint64(store.InitialTerm),
	}}, nil)
	if err := r.store.Append(log); err != nil {
		t.Fatal(err)
	}
	r.merges(of(3, 2, "m", "z", 1), merged)
	if r.replica(3) == 0 || r.Stats().Closed != 1 || r.runs(2) || !r.runs(3) {
		t.Fatalf("MERGED-BLINDLY: replica %d of the right tablet, %d closed", r.replica(3), r.Stats().Closed)
	}
	r.merges(r.freeze(3, left), merged)
	if r.replica(3) != 0 || r.Stats().Closed != 0 || !r.runs(2) || r.runs(3) || r.rows() != 5 {
		t.Fatalf("replica %d of the right tablet, %d closed, %d rows", r.replica(3), r.Stats().Closed, r.rows())
	}
	r.Deliver(message(of(3, 2, "m", "z", 1), 1))
	r.settle()
	if r.replica(3) != 0 {
		t.Error("the right tablet's replica is made again")
	}
	s, _, err := snapshot.StoredReplica(r.store, 2)
	if err != nil || !wire.Holds(s.Descriptor, wire.Position{Table: 16, Row: "x"}) {
		t.Errorf("stored: %v, %v", s, err)
	}
}

// TestSnapshotSparesTheMerge: a lagging replica receives a snapshot from after the merge. The same
// step removes the frozen neighbour's replica: without it and without the snapshot, the replica
// could continue in neither way.
func TestSnapshotSparesTheMerge(t *testing.T) {
	left := of(2, 1, "a", "m", 1)
	r := newReplicaRig(t, left, of(3, 1, "m", "z", 1))
	r.freeze(3, left)
	for _, c := range snapshotOf(t, of(2, 3, "a", "z", 1), 1, 40, rowsBetween(0, 4), 9) {
		if a := r.send(c); !a.Installed {
			t.Fatalf("the snapshot: %v", a)
		}
	}
	r.settle()
	if r.replica(3) != 0 || !r.runs(2) || r.runs(3) || r.rows() != 4 {
		t.Errorf("replica %d of the right tablet, %d rows", r.replica(3), r.rows())
	}
}

// TestFrozenReplicaIsKept: while the left tablet's replica here still has to take the rows, another
// tablet that already has them gets no replica here; afterwards the frozen one is removed.
func TestFrozenReplicaIsKept(t *testing.T) {
	left := of(2, 1, "a", "m", 1)
	r := newReplicaRig(t, left, of(3, 1, "m", "z", 1))
	r.freeze(3, left)
	later := of(4, 9, "m", "z", 1) // split off from the merged tablet
	deliver := func() {
		r.mu.Lock()
		clear(r.refused)
		r.mu.Unlock()
		r.Deliver(message(later, 1))
		r.settle()
		r.settle() // the work of tablet 4 may have added work for tablet 3
	}
	deliver()
	if r.replica(3) == 0 || r.replica(4) != 0 {
		t.Fatalf("FROZEN-DROPPED: replicas %d and %d, and tablet 2 needs the first", r.replica(3), r.replica(4))
	}
	r.removed(2, 1)
	r.settle()
	deliver()
	deliver()
	if r.replica(3) != 0 || r.replica(4) == 0 {
		t.Errorf("replicas %d and %d, and nobody needs the first", r.replica(3), r.replica(4))
	}
}
