package tablet

import (
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Split of the tablet in two. The leader accepts a split as its exclusive, and proposes it
// when nothing is in flight; every replica applies the entry, which writes the right
// tablet's state and log in the same Txn, and starts a replica of it on its own node. All of
// it runs in the tablet's turns.

// splitAt refuses a split outside of this tablet, and any split of the meta tablet.
func (c *check) splitAt(r *pb.SplitRequest) {
	switch {
	case c.tablet.id == MetaTabletID:
		c.refuse(pb.Error_CODE_INVALID, "the meta tablet does not split")
	case r.GetNewTabletId() == 0:
		c.refuse(pb.Error_CODE_INVALID, "a split needs the id of the new tablet")
	case len(r.GetRow()) > c.tablet.cfg.Limits.Row:
		c.refuse(pb.Error_CODE_TOO_LARGE, "split row of %d bytes; at most %d", len(r.GetRow()),
			c.tablet.cfg.Limits.Row)
	default:
		c.row(r.GetTable(), r.GetRow())
	}
}

// beginSplit accepts the split, to be proposed when nothing is in flight. It answers a split
// that already exists with its right side.
func (e *evaluation) beginSplit(call *Call, r *pb.SplitRequest) {
	at := wire.Position{Table: mvcc.TableID(r.Table), Row: wire.String(r.Row)}
	if at == wire.StartOf(e.descriptor) { // the boundary exists already
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

// splitDescriptor returns the descriptors of both sides. Both get the next epoch, so that
// neither accepts requests of the old one.
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

// split writes both descriptors, and a log for the new tablet, in the entry's Txn. The new
// tablet inherits the replicas with their ids, the catalogue, the bound and the safepoint.
// No data is copied. If the new replica must not be created (skipChild), only the left side
// changes.
func (s *state) split(b *store.Batch, st *store.Store, by *wire.Split) error {
	s.descriptor, s.sibling = by.Left, by.Right
	s.bytes, s.rough = s.bytes/2, s.rough || s.bytes > 0 // each side gets half
	s.stateChanged = true
	if there, err := skipChild(b, st, s.replica, by.Right); there || err != nil {
		return err
	}
	child := state{
		replica: s.replica, conf: s.conf, descriptor: by.Right,
		appliedCatalogue: s.appliedCatalogue,
		appliedBound:     s.appliedBound, appliedSafepoint: s.appliedSafepoint,
		index: store.InitialIndex, entryTerm: store.InitialTerm,
		bytes: s.bytes, rough: s.rough,
	}
	child.putNew(b) // keeps a vote that this replica has already cast
	return nil
}

// skipChild reports whether the new tablet's replica must not be created. Either it exists
// already, from a snapshot, or a later one waits for its snapshot; or it was removed before it
// was created: then skipChild adds to the batch that its rows are cleared.
func skipChild(b *store.Batch, st *store.Store, replica uint64,
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

// splitVisible removes the new tablet's rows from this one's memory and makes the host start the
// new tablet. The estimates of garbage, size and load covered the whole range, so they start over.
func (t *Tablet) splitVisible(s *wire.Split) {
	t.memory.Split(s.Left, wire.StartOf(s.Right))
	t.history.Forget()
	t.sizing, t.loads = sizing{}, loads{}
	t.beginPass()
	if t.group.Elected() && t.cfg.Ticker != nil {
		// The other replicas know this node as the leader, so the new replica here need not wait
		// for an election timeout.
		t.cfg.Ticker.boost(s.Right.TabletId)
	}
	t.host.SplitApplied(s.Left, s.Right)
	if x := t.barrier.op; x != nil && x.split != nil {
		t.endExclusive()
	}
}
