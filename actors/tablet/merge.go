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

// This file merges two adjacent tablets whose replicas are on the same nodes (docs/adr/0053).
// The right one is frozen for the left one by an entry in its own log: from there on it
// serves nothing, and no entry but a release changes it. When every replica of it has the
// entry durably, the left one takes its rows by an entry in its log. A replica that comes to
// that entry stops, and its node makes one replica of the two stored ones and opens that.
//
// Each step names an epoch and raises it. So a release of the left tablet keeps an earlier
// order to take the right one's rows from ever being carried out, and whoever coordinates
// may then release the right one as well. After it has taken the rows the left tablet
// remembers whose, and changes neither its range nor its replicas until it is released,
// which it is once a majority of the right one's replicas are gone: from then on nobody can
// release that one by mistake. All of it runs in the tablet's turns.

// merge refuses a step that does not fit this tablet.
func (c *check) merge(epoch uint64, r *pb.MergeRequest) {
	d, other := c.tablet.descriptor, r.GetOther()
	refuse := func(code pb.Error_Code, format string, args ...any) {
		c.refuse(failure(code, "tablet %d: "+format, append([]any{c.tablet.id}, args...)...))
	}
	end, bounded := wire.EndOf(d)
	otherEnd, otherBounded := wire.EndOf(other)
	switch step := r.GetStep(); {
	case epoch == 0:
		refuse(pb.Error_CODE_INVALID, "a step of a merge needs the tablet's epoch")
	case c.tablet.id == MetaTabletID || other.GetTabletId() == MetaTabletID:
		refuse(pb.Error_CODE_INVALID, "the meta tablet is not merged")
	case step == pb.MergeRequest_STEP_RELEASE:
	case step != pb.MergeRequest_STEP_FREEZE && step != pb.MergeRequest_STEP_TAKE:
		refuse(pb.Error_CODE_INVALID, "unknown step %d of a merge", step)
	case !wire.SameNodes(d, other):
		refuse(pb.Error_CODE_INVALID, "its replicas and those of tablet %d are not on the same nodes",
			other.GetTabletId())
	case step == pb.MergeRequest_STEP_FREEZE && (!otherBounded || otherEnd != wire.StartOf(d)),
		step == pb.MergeRequest_STEP_TAKE && (!bounded || end != wire.StartOf(other)):
		refuse(pb.Error_CODE_INVALID, "tablet %d is not beside it", other.GetTabletId())
	}
}

// duringMerge returns the refusal of an operation that a tablet does not do while it is being
// merged into another, or has taken another's rows and was not released.
func (o *proposer) duringMerge(req *pb.TabletRequest) *pb.TabletResponse {
	if req.GetMerge().GetStep() == pb.MergeRequest_STEP_RELEASE {
		return nil
	}
	if o.frozen != nil {
		return failure(pb.Error_CODE_UNAVAILABLE, "tablet %d is being merged into tablet %d; try again",
			o.id, o.frozen.TabletId)
	}
	if o.took != nil && (req.GetMerge() != nil || req.GetSplit() != nil || req.GetChangeReplicas() != nil) {
		return failure(pb.Error_CODE_NOT_PROPOSED, "tablet %d has just taken the rows of tablet %d; try again",
			o.id, o.took.TabletId)
	}
	return nil
}

// beginMerge takes a step on; it is proposed when nothing is in flight any more.
func (e *evaluation) beginMerge(call *Call, r *pb.MergeRequest) {
	e.drain.take(&exclusive{call: call, merge: r})
}

// mergeStep returns the command of a step. The tablet that takes another's rows gets an
// epoch above those of both: of two descriptors that hold a row the one with the higher
// epoch is the newer.
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

// releases reports whether the command changes a tablet that is frozen: it ends that. All
// others are dropped, on every replica alike.
func releases(c *wire.Command) bool {
	return c.Merge != nil && c.Merge.Left == nil && c.Merge.Right == nil
}

// mergeStep applies a step other than the last. A replica that is frozen is so durably
// before it says that it is: after a crash, nobody may be left to tell it.
func (s *state) mergeStep(b *store.Batch, by *wire.Merge) {
	s.descriptor, s.frozen, s.took = by.Tablet, by.Left, nil
	s.stateChanged = true
	if by.Left != nil {
		b.Barrier()
	}
}

// mergeVisible takes note that a step is visible. A leader that is frozen collects and
// measures no more; one that is released begins anew.
func (t *Tablet) mergeVisible(m *wire.Merge) {
	t.host.Changed(m.Tablet)
	t.history.forget()
	t.sizing.run = nil
	t.beginPass()
	if x := t.drain.op; x != nil && x.merge != nil {
		t.endExclusive()
	}
}

// errMerging stops a replica until its node has merged another's into it.
var errMerging = errors.New("tablet: the rows of another tablet are being taken over")

// takeRows stops the replica at the entry by which the tablet takes another's rows. That
// the entry is committed is the decision, so the caller is answered now; what follows it in
// the log is applied by the replica that the node opens.
func (t *Tablet) takeRows(a *applied, by *wire.Merge) {
	led := t.leading
	if p := a.proposal; t.pipeline.visible(p) {
		p.deliver()
		p.replies = nil
	}
	t.cfg.Logger.Info("takes the rows of another tablet", "tablet", t.id, "from", by.Right.TabletId)
	t.failed = errMerging
	t.stepDown(errMerging)
	if led && t.cfg.Ticker != nil {
		t.cfg.Ticker.boost(t.id) // the others are opened anew as well
	}
	t.host.Following(t.id, 0)
	t.host.Merging(&snapshot.Merge{
		Right: by.Right, Merged: by.Tablet, Index: a.index, Term: a.term,
	})
}

// frozenHere returns the tablet that this one is frozen for, once that is visible here.
func (s *state) frozenHere(g *group.Group) *pb.TabletDescriptor {
	if g.Visible() < s.frozenAt {
		return nil
	}
	return s.frozen
}
