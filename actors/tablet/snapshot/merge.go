package snapshot

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Merge of two stored replicas. Keys do not contain the tablet, so no row is rewritten: one batch,
// which is one frame of the log with a checkpoint of everything, extends the left replica's range
// over both and deletes the right one's state and log. A crash before that frame is durable leaves
// both unchanged.

// Merge is the Raft entry by which a tablet takes over the rows of its right neighbour.
type Merge struct {
	Right       *pb.TabletDescriptor // frozen
	Merged      *pb.TabletDescriptor // the left tablet after the merge
	Index, Term uint64
}

// ErrNotFrozen reports that this node has no replica of the right tablet in the state in which it
// was frozen. A replica that lacks committed entries of its group must not be merged.
var ErrNotFrozen = errors.New("snapshot: the replica to be merged is missing here or not in its frozen state: " +
	"this node's replica must be replaced")

// Merge merges the two replicas. Both actors must have stopped, and their writes be complete. If
// the replicas are already merged it does nothing.
func (i *Installer) Merge(m *Merge) error {
	snap := i.store.Snap()
	defer snap.Close()
	left, ok, err := snap.Applied(m.Merged.TabletId)
	if err != nil || ok && left.Index >= m.Index {
		return err
	}
	b := &store.Batch{}
	if err := PutMerge(b, i.store, m); err != nil {
		return err
	}
	return i.write("merge", b)
}

// PutMerge adds the merge of the two stored replicas to the batch. It returns ErrNotFrozen if
// the right one is not as it was frozen, and another error if a replica cannot be read or the left
// one has not applied exactly the entries before the merge.
func PutMerge(b *store.Batch, st *store.Store, m *Merge) error {
	left, err := Capture(st.Snap(), m.Merged.TabletId)
	if err != nil {
		return err
	}
	left.Snap.Close()
	if left.Applied.Index != m.Index-1 {
		return fmt.Errorf("snapshot: tablet %d has applied entry %d last, not entry %d, as the merge "+
			"requires", m.Merged.TabletId, left.Applied.Index, m.Index-1)
	}
	right, err := Capture(st.Snap(), m.Right.TabletId)
	switch {
	case errors.Is(err, errReplaced), errors.Is(err, errNoState):
		return fmt.Errorf("%w: tablet %d: %w", ErrNotFrozen, m.Right.TabletId, err)
	case err != nil:
		return fmt.Errorf("snapshot: read the replica of tablet %d: %w", m.Right.TabletId, err)
	}
	right.Snap.Close()
	if right.State.FrozenFor == nil || right.State.GetTablet().GetEpoch() != m.Right.Epoch {
		return fmt.Errorf("%w: tablet %d is at epoch %d, frozen %v; want epoch %d, frozen", ErrNotFrozen,
			m.Right.TabletId, right.State.GetTablet().GetEpoch(), right.State.FrozenFor != nil, m.Right.Epoch)
	}
	if err := putMerged(b, m, left, right); err != nil {
		return err
	}
	return putGone(b, m.Right.TabletId)
}

// putMerged adds the state of the merged replica. Bound, safepoint and catalogue are the higher of
// both, since neither side may break its promise; a newer value of one side reaches the other
// before any reader relies on it.
func putMerged(b *store.Batch, m *Merge, left, right *Captured) error {
	state := proto.CloneOf(left.State)
	state.Tablet, state.Took = m.Merged, m.Right
	state.Bound = max(state.Bound, right.State.Bound)
	state.Safepoint = max(state.Safepoint, right.State.Safepoint)
	if right.State.GetCatalogue().GetVersion() > state.GetCatalogue().GetVersion() {
		state.Catalogue = right.State.Catalogue
	}
	data, err := proto.Marshal(state)
	if err != nil {
		return fmt.Errorf("tablet %d: encode the merged state: %w", m.Merged.TabletId, err)
	}
	b.PutTabletState(m.Merged.TabletId, data)
	b.PutApplied(m.Merged.TabletId, store.Applied{
		Index: m.Index, Term: m.Term, Epoch: m.Merged.Epoch,
		Bytes: left.Applied.Bytes + right.Applied.Bytes,
		Rough: left.Applied.Rough || right.Applied.Rough,
	})
	return nil
}

// NeededBy reports whether left, a replica on the same node, has not yet applied the entry that
// merges this tablet into its own or abandons the merge.
func (r *Replica) NeededBy(left *Replica) bool {
	epoch := left.Descriptor.GetEpoch()
	return r.FrozenFor != nil && left.Tablet == r.FrozenFor.TabletId && !left.Marked &&
		epoch > 0 && epoch <= r.FrozenFor.Epoch
}

// putGone adds the removal of the replica of a merged tablet: a tombstone for all ids. The rows,
// which now belong to another tablet, stay.
func putGone(b *store.Batch, tablet uint64) error {
	b.DeleteReplica(tablet)
	return putTombstone(b, tablet, &wire.Tombstone{NextReplicaId: math.MaxUint64})
}
