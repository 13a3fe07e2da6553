package snapshot

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Listing, creation and destruction of a store's replicas. Package replicas, the start of a node
// and `percolator inspect` call it; of the tablets' turns only those of splits do, which add to
// their own batches.

// Replica describes a tablet's stored replica.
type Replica struct {
	Tablet    uint64
	ReplicaID uint64
	// Descriptor is the tablet as of the last entry applied here. For a replica that waits for its
	// first snapshot it has the tablet's id, epoch 0 and no rows.
	Descriptor *pb.TabletDescriptor
	// FrozenFor is the tablet into which this one is about to be merged; nil if none.
	FrozenFor *pb.TabletDescriptor
	// Marked reports that a range is being filled or cleared under this tablet's id. Descriptor is
	// that range.
	Marked bool
}

// StoredReplicas lists a store's replicas, then its installation markers (Replica.Marked), each in the
// order of tablets.
func StoredReplicas(st *store.Store) (out []Replica, err error) {
	snap := st.Snap()
	defer snap.Close()
	for e, err := range snap.TabletStates() {
		if err != nil {
			return nil, fmt.Errorf("snapshot: list the store's replicas: %w", err)
		}
		r, err := readReplica(e.Tablet, e.State)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	for e, err := range snap.Installings() {
		if err != nil {
			return nil, fmt.Errorf("snapshot: list the store's markers: %w", err)
		}
		marker := &wire.Installing{}
		if err := proto.Unmarshal(e.State, marker); err != nil {
			return nil, fmt.Errorf("snapshot: decode the installation marker of tablet %d: %w", e.Tablet, err)
		}
		out = append(out, Replica{
			Tablet: e.Tablet, ReplicaID: marker.ReplicaId, Descriptor: marker.Tablet, Marked: true,
		})
	}
	return out, nil
}

// readReplica decodes a stored state. Stores of builds before replication have id 0, which means
// replica 1.
func readReplica(id uint64, data []byte) (Replica, error) {
	state := &wire.TabletState{}
	if err := proto.Unmarshal(data, state); err != nil {
		return Replica{}, fmt.Errorf("tablet %d: decode the stored state: %w", id, err)
	}
	return Replica{
		Tablet: id, ReplicaID: max(state.ReplicaId, group.FirstReplica), Descriptor: state.Tablet,
		FrozenFor: state.FrozenFor,
	}, nil
}

// StoredReplica returns the tablet's replica. It reports false if the store has none.
func StoredReplica(st *store.Store, tablet uint64) (Replica, bool, error) {
	snap := st.Snap()
	defer snap.Close()
	return ReplicaIn(snap, tablet)
}

// ReplicaIn returns the tablet's replica as of the Snap, false if there is none.
func ReplicaIn(snap *store.Snap, tablet uint64) (Replica, bool, error) {
	data, ok, err := snap.TabletState(tablet)
	if !ok || err != nil {
		return Replica{}, false, err
	}
	r, err := readReplica(tablet, data)
	return r, err == nil, err
}

// Create durably creates a replica that waits for its first snapshot. It has no rows, no entries
// and an empty configuration. So it never campaigns, but it may vote, and must if its group was
// created by a split that this node has not applied. The store must have neither a replica of the
// tablet nor a marker.
func (i *Installer) Create(tablet, replica uint64) error {
	// An absent configuration means the single voter 1, so store one that is empty but encodes to
	// some bytes.
	nobody, err := proto.Marshal(&raftpb.ConfState{AutoLeave: proto.Bool(false)})
	if err != nil {
		return fmt.Errorf("snapshot: encode the configuration of tablet %d: %w", tablet, err)
	}
	state, err := proto.Marshal(&wire.TabletState{
		Tablet: &pb.TabletDescriptor{TabletId: tablet}, Catalogue: &pb.Catalogue{},
		ReplicaId: replica, ConfState: nobody,
	})
	if err != nil {
		return fmt.Errorf("snapshot: encode the state of tablet %d: %w", tablet, err)
	}
	b := &store.Batch{}
	b.PutTabletState(tablet, state)
	b.PutApplied(tablet, store.Applied{Rough: true})
	b.InitialLog(tablet, 0, 0)
	return i.write("create", b)
}

// tombstone returns the tablet's record of replicas that were removed here or are stale.
func tombstone(snap *store.Snap, tablet uint64) (*wire.Tombstone, error) {
	t := &wire.Tombstone{}
	record, ok, err := snap.Tombstone(tablet)
	if !ok || err != nil {
		return t, err
	}
	if err := proto.Unmarshal(record, t); err != nil {
		return nil, fmt.Errorf("decode the tombstone of tablet %d: %w", tablet, err)
	}
	return t, nil
}

func putTombstone(b *store.Batch, tablet uint64, t *wire.Tombstone) error {
	record, err := proto.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode the tombstone of tablet %d: %w", tablet, err)
	}
	b.PutTombstone(tablet, record)
	return nil
}

// NextReplica returns the lowest id that a replica of the tablet may have here; 0 if it may have
// any.
func NextReplica(snap *store.Snap, tablet uint64) (uint64, error) {
	t, err := tombstone(snap, tablet)
	return t.GetNextReplicaId(), err
}

// IsStale reports whether the replica was marked by MarkStale.
func IsStale(st *store.Store, tablet, replica uint64) (bool, error) {
	snap := st.Snap()
	defer snap.Close()
	t, err := tombstone(snap, tablet)
	return t.GetStaleReplicaId() == replica, err
}

// MarkStale durably records, for all these replicas in one batch, that their logs lack entries
// that they have acknowledged.
func (i *Installer) MarkStale(replicas []Replica) error {
	snap := i.store.Snap()
	defer snap.Close()
	b := &store.Batch{}
	for _, r := range replicas {
		t, err := tombstone(snap, r.Tablet)
		if err != nil {
			return err
		}
		t.StaleReplicaId = r.ReplicaID
		if err := putTombstone(b, r.Tablet, t); err != nil {
			return err
		}
	}
	return i.write("stale replicas", b)
}

// Destroy removes the tablet's replica with all its data, and prevents replicas with ids below
// next from being created here. Its actor must have stopped, and its writes be complete.
func (i *Installer) Destroy(tablet, next uint64) error {
	// An interrupted installation may have written rows outside the replica's range.
	if err := i.Finish(tablet); err != nil {
		return err
	}
	snap := i.store.Snap()
	before, err := NextReplica(snap, tablet)
	snap.Close()
	if err != nil {
		return err
	}
	r, ok, err := StoredReplica(i.store, tablet)
	if err != nil {
		return err
	}
	b := &store.Batch{}
	err = putTombstone(b, tablet, &wire.Tombstone{NextReplicaId: max(before, next)})
	if err != nil {
		return err
	}
	// Nothing to clear: the tombstone alone prevents the replica from being created.
	if !ok {
		return i.write("tombstone", b)
	}
	b.DeleteReplica(tablet)
	marker := &wire.Installing{TabletId: tablet, Tablet: r.Descriptor}
	if err := putInstalling(b, marker); err != nil {
		return err
	}
	if err := i.write("tombstone", b); err != nil {
		return err
	}
	return i.finish(marker)
}

// PutClearing adds to the batch a marker under which the rows of a tablet without a replica
// here are cleared. A split needs it if the tombstone shows that the new tablet's replica
// was removed before it was created. Finish, or the next start, clears them.
func PutClearing(b *store.Batch, d *pb.TabletDescriptor) error {
	return putInstalling(b, &wire.Installing{TabletId: d.TabletId, Tablet: d})
}
