package tablet

import (
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// This file splits the tablet in two. The leader takes a split on as its exclusive, and
// proposes it when nothing is in flight; every replica applies the entry, which writes
// the right tablet's state and log in the same Txn, and starts a replica of it on its own
// node. All of it runs in the tablet's turns.

// splitAt refuses a split outside of this tablet, and any of the meta tablet.
func (c *check) splitAt(r *pb.SplitRequest) {
	switch {
	case c.tablet.id == MetaTabletID:
		c.refuse(wire.Failure(pb.Error_CODE_INVALID, "the meta tablet does not split"))
	case r.GetNewTabletId() == 0:
		c.refuse(wire.Failure(pb.Error_CODE_INVALID, "a split needs the id of the new tablet"))
	case len(r.GetRow()) > c.tablet.cfg.Limits.Row:
		c.refuse(wire.Failure(pb.Error_CODE_TOO_LARGE, "split row of %d bytes; at most %d",
			len(r.GetRow()), c.tablet.cfg.Limits.Row))
	default:
		c.row(r.GetTable(), r.GetRow())
	}
}

// beginSplit takes the split on; it is proposed when nothing is in flight any more. A
// split that was made already is answered with its right side.
func (e *evaluation) beginSplit(call *Call, r *pb.SplitRequest) {
	at := wire.Position{Table: mvcc.TableID(r.Table), Row: wire.String(r.Row)}
	if at == wire.StartOf(e.descriptor) { // the boundary is there already
		e.proposal.answer(call, splitResponse(nil, e.descriptor))
		return
	}
	e.barrier.take(&exclusive{call: call, split: r})
}

func splitResponse(left, right *pb.TabletDescriptor) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_Split{Split: &pb.SplitResponse{Left: left, Right: right}},
	}
}

// splitDescriptor returns the descriptors of both sides. Both get the next epoch:
// requests under the old one go to neither.
func splitDescriptor(d *pb.TabletDescriptor,
	r *pb.SplitRequest) (left, right *pb.TabletDescriptor) {
	left, right = proto.CloneOf(d), proto.CloneOf(d)
	left.EndTable, left.EndRow, left.EndUnbounded = r.Table, r.Row, false
	right.StartTable, right.StartRow = r.Table, r.Row
	right.TabletId = r.NewTabletId
	left.Epoch++
	right.Epoch = left.Epoch
	return left, right
}

// split writes both descriptors, and a log for the new tablet, in the Txn of the entry.
// The new tablet inherits the replicas with their ids, the catalogue, the bound and the
// safepoint. No data is copied.
func (s *state) split(b *store.Batch, st *store.Store, by *wire.Split) error {
	s.descriptor, s.sibling = by.Left, by.Right
	s.bytes, s.rough = s.bytes/2, s.rough || s.bytes > 0 // of each side
	s.stateChanged = true
	if there, err := childThere(b, st, s.replica, by.Right); there || err != nil {
		return err
	}
	child := state{
		replica: s.replica, conf: s.conf, descriptor: by.Right,
		appliedCatalogue: s.appliedCatalogue,
		appliedBound:     s.appliedBound, appliedSafepoint: s.appliedSafepoint,
		index: store.InitialIndex, entryTerm: store.InitialTerm,
		bytes: s.bytes, rough: s.rough,
	}
	child.put(b, by.Right.TabletId)
	b.PutApplied(by.Right.TabletId, child.applied())
	// a vote that was given already stays
	b.InitialLog(by.Right.TabletId, child.index, child.entryTerm)
	return nil
}

// childThere reports whether the new tablet's replica is not to be made. Either it is
// here already, by a snapshot, or a later one waits for its snapshot; or it was removed
// before it came to be, and then its rows are to be cleared.
func childThere(b *store.Batch, st *store.Store, replica uint64,
	right *pb.TabletDescriptor) (bool, error) {
	snap := st.Snap()
	defer snap.Close()
	if next, err := snapshot.NextReplica(snap, right.TabletId); err != nil {
		return false, err
	} else if next > replica {
		return true, snapshot.PutClearing(b, right)
	}
	r, _, err := snapshot.ReplicaIn(snap, right.TabletId)
	return r.Descriptor.GetEpoch() > 0 || r.ReplicaID > replica, err
}

// splitVisible takes the new tablet's rows out of this one's memory and has the host
// start the new tablet. What was known of garbage, size and load was of the whole range
// and begins anew.
func (t *Tablet) splitVisible(s *wire.Split) {
	t.memory.Split(s.Left, wire.StartOf(s.Right))
	t.history.Forget()
	t.sizing, t.loads = sizing{}, loads{}
	t.beginPass()
	if t.group.Elected() && t.cfg.Ticker != nil {
		// This leader is what the others have heard from last: the new replica here need
		// not wait for an election timeout.
		t.cfg.Ticker.boost(s.Right.TabletId)
	}
	t.host.SplitApplied(s.Left, s.Right)
	if x := t.barrier.op; x != nil && x.split != nil {
		t.endExclusive()
	}
}
