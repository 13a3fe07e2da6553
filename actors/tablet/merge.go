package tablet

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Merge of two adjacent tablets whose replicas are on the same nodes (docs/adr/0053). An entry
// in the right tablet's own log freezes it for the left one: from then on it serves nothing, and
// no entry but a release changes it. When every replica of the right tablet has that entry
// durably, an entry in the left tablet's log takes its rows. A replica that reaches this entry
// stops, and its node merges the two stored replicas and opens the result.
//
// Each step names an epoch and raises it. So once the left tablet is released, an earlier
// request to take the right one's rows can no longer succeed, and the coordinator may release
// the right one too. A left tablet that has taken the rows records whose, and changes neither
// its range nor its replicas until it is released. It is released once a majority of the right
// one's replicas have been removed: from then on the right one cannot be released by mistake.
// All of it runs in the tablet's turns.

// merge refuses a step that does not fit this tablet.
func (c *check) merge(epoch uint64, r *pb.MergeRequest) {
	d, other := c.tablet.descriptor, r.GetOther()
	refuse := func(format string, args ...any) {
		c.refuse(pb.Error_CODE_INVALID, "tablet %d: "+format, append([]any{c.tablet.id}, args...)...)
	}
	end, bounded := wire.EndOf(d)
	otherEnd, otherBounded := wire.EndOf(other)
	switch step := r.GetStep(); {
	case epoch == 0:
		refuse("a step of a merge needs the tablet's epoch")
	case c.tablet.id == MetaTabletID || other.GetTabletId() == MetaTabletID:
		refuse("the meta tablet is not merged")
	case step == pb.MergeRequest_STEP_RELEASE:
	case step != pb.MergeRequest_STEP_FREEZE && step != pb.MergeRequest_STEP_TAKE:
		refuse("unknown step %d of a merge", step)
	case !wire.SameNodes(d, other):
		refuse("its replicas and those of tablet %d are not on the same nodes",
			other.GetTabletId())
	case step == pb.MergeRequest_STEP_FREEZE && (!otherBounded || otherEnd != wire.StartOf(d)),
		step == pb.MergeRequest_STEP_TAKE && (!bounded || end != wire.StartOf(other)):
		refuse("tablet %d is not adjacent to it", other.GetTabletId())
	}
}

// duringMerge returns the refusal of an operation that is not allowed while the tablet is
// frozen for a merge, or has taken another tablet's rows and is not released yet; nil if it is
// allowed.
func (o *proposer) duringMerge(req *pb.TabletRequest) *pb.TabletResponse {
	if req.GetMerge().GetStep() == pb.MergeRequest_STEP_RELEASE {
		return nil
	}
	if o.frozen != nil {
		return wire.Failure(pb.Error_CODE_UNAVAILABLE, "tablet %d is being merged into tablet %d; try again",
			o.id, o.frozen.TabletId)
	}
	if o.took != nil && (req.GetMerge() != nil || req.GetSplit() != nil || req.GetChangeReplicas() != nil) {
		return wire.Failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d has just taken the rows of tablet %d; try again",
			o.id, o.took.TabletId)
	}
	return nil
}

// mergeStep returns the command of a step. The tablet that takes another's rows gets an
// epoch above both: of two descriptors that contain a row, the one with the higher epoch is
// the newer.
func mergeStep(d *pb.TabletDescriptor, r *pb.MergeRequest) *wire.Merge {
	next := proto.CloneOf(d)
	next.Epoch++
	out := &wire.Merge{Tablet: next}
	switch r.GetStep() {
	case pb.MergeRequest_STEP_FREEZE:
		out.Left = r.Other
	case pb.MergeRequest_STEP_TAKE:
		out.Right = r.Other
		next.EndTable, next.EndRow, next.EndUnbounded = r.Other.EndTable, r.Other.EndRow, r.Other.EndUnbounded
		next.Epoch = max(d.Epoch, r.Other.Epoch) + 1
	}
	return out
}

func mergeResponse(d *pb.TabletDescriptor) *pb.TabletResponse {
	return &pb.TabletResponse{
		Result: &pb.TabletResponse_Merge{Merge: &pb.MergeResponse{Tablet: d}},
	}
}

// releases reports whether the command is a release, the only one that a frozen tablet applies.
// Every replica drops all others.
func releases(c *wire.Command) bool {
	return c.Merge != nil && c.Merge.Left == nil && c.Merge.Right == nil
}

// applyMerge applies a freeze or a release. A freeze is durable before the replica reports
// it: after a crash, no other replica may be left to send it.
func (s *state) applyMerge(b *store.Batch, by *wire.Merge) {
	s.descriptor, s.frozen, s.took = by.Tablet, by.Left, nil
	s.stateChanged = true
	if by.Left != nil {
		b.Barrier()
	}
}

// mergeVisible handles a step that has become visible. A frozen leader stops collecting and
// measuring; a released one starts over.
func (t *Tablet) mergeVisible(m *wire.Merge) {
	t.host.Changed(m.Tablet)
	t.history.Forget()
	t.sizing.run = nil
	t.beginPass()
	if x := t.barrier.op; x != nil && x.merge != nil {
		t.endExclusive()
	}
}

// errMerging stops a replica until its node has merged another tablet's replica into it.
var errMerging = errors.New("tablet: the replica is being merged with that of another tablet; try again")

// takeRows stops the replica at the entry by which the tablet takes another's rows. The
// committed entry is the decision, so the caller is answered now. The replica that the node
// opens after the merge applies the entries after it.
func (t *Tablet) takeRows(a *applied, by *wire.Merge) {
	led := t.leading
	if p := a.proposal; t.pipeline.visible(p) {
		p.deliver()
		p.replies = nil
	}
	t.cfg.Logger.Info("taking the rows of another tablet", "tablet", t.id, "from", by.Right.TabletId)
	t.failed = errMerging
	t.stepDown(errMerging)
	if led && t.cfg.Ticker != nil {
		// The other replicas stop for the merge too, so none leads: this one campaigns once it is reopened.
		t.cfg.Ticker.boost(t.id)
	}
	t.host.Following(t.id, 0)
	t.host.Merging(&snapshot.Merge{
		Right: by.Right, Merged: by.Tablet, Index: a.index, Term: a.term,
	})
}

// frozenHere returns the tablet for which this one is frozen, once this replica's freeze is
// visible; otherwise nil.
func (s *state) frozenHere(g *group.Group) *pb.TabletDescriptor {
	if g.Visible() < s.frozenAt {
		return nil
	}
	return s.frozen
}
