package tablet

import (
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

func mergeOf(epoch uint64, step pb.MergeRequest_Step, other *pb.TabletDescriptor) *pb.TabletRequest {
	return &pb.TabletRequest{Epoch: epoch, Op: &pb.TabletRequest_Merge{
		Merge: &pb.MergeRequest{Step: step, Other: other},
	}}
}

func catalogueOf(version uint64) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_SetCatalogue{
		SetCatalogue: &pb.SetCatalogueRequest{Catalogue: &pb.Catalogue{Version: version}},
	}}
}

// newMergeRig is a rig with two tablets, 2 and 3, that meet at row m.
func newMergeRig(t *testing.T) (r *rig, left, right *pb.TabletDescriptor) {
	t.Helper()
	r = newRigOf(t, store.Options{InMemory: true}, DefaultPipeline, &pb.TabletDescriptor{
		TabletId: 2, Epoch: 1, StartTable: 16, EndUnbounded: true,
		Replicas: []*pb.Replica{{ReplicaId: 1, NodeId: 7}}, // merge steps compare them
	})
	s := r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
		Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
	}}).GetSplit()
	r.awaitLeader()
	return r, s.Left, s.Right
}

// TestFrozenServesNothing: a frozen tablet serves neither reads nor writes, and changes nothing.
func TestFrozenServesNothing(t *testing.T) {
	r, left, right := newMergeRig(t)
	r.do(3, onePhaseOf(r.take(1), put("x", "1")))
	old := r.start(3, onePhaseOf(r.take(1), put("y", "1"))) // drains before the freeze
	frozen := r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left)).GetMerge().GetTablet()
	if e := await(t, old).GetError(); e != nil {
		t.Errorf("a commit from before: %v", e)
	}
	if s := r.status(3); s.FrozenFor == nil {
		t.Errorf("its status is %v", s)
	}
	for what, req := range map[string]*pb.TabletRequest{
		"a read": getOf(r.take(1), "x"), "a commit": onePhaseOf(r.take(1), put("x", "2")),
		"a bound":     collectOf(&pb.CollectRequest{Bound: uint64(r.take(1))}),
		"a catalogue": catalogueOf(9),
		"a change":    changeOf(frozen.Epoch, step(addLearner, 8)),
	} {
		if e := r.try(3, req).GetError(); e.GetCode() != pb.Error_CODE_UNAVAILABLE {
			t.Errorf("FROZEN-SERVES: %s: %v", what, e)
		}
	}
}

// TestFrozenAppliesNothing: an entry proposed although the tablet is frozen, as by the leader's
// internal jobs, changes nothing on any replica: some replicas may have handed over their rows by
// then, and others not.
func TestFrozenAppliesNothing(t *testing.T) {
	r, left, right := newMergeRig(t)
	frozen := r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left)).GetMerge().GetTablet()
	effect := encode([]mvcc.Mutation{{
		Group: mvcc.GroupRaw, Cell: mvcc.Cell{Table: 16, Row: "x", Column: "c"}, Value: []byte("v"),
	}}, true)
	data, err := proto.Marshal(&wire.Command{Epoch: frozen.Epoch, Effects: effect.wires})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.system.Root.StopFuture(r.port(3).PID()).Wait()
	tablet := newTablet(r.system, r.store, r.logs, r.readers, 3, r, Config{Logger: slog.New(slog.DiscardHandler)})
	if err := tablet.open(); err != nil {
		t.Fatal(err)
	}
	b, a := &store.Batch{}, &applied{index: tablet.index + 1, term: tablet.entryTerm}
	if err := tablet.applyCommand(b, a, &raftpb.Entry{Data: data}); err != nil {
		t.Fatal(err)
	}
	if !a.change.dropped || b.Len() > 0 {
		t.Errorf("FROZEN-CHANGED: dropped: %v, with %d effects", a.change.dropped, b.Len())
	}
	r.spawn(3)
}

// TestReleaseOutrunsTake: after the left tablet was released, an earlier request to take the rows
// has no effect, and the right one may be released too.
func TestReleaseOutrunsTake(t *testing.T) {
	r, left, right := newMergeRig(t)
	frozen := r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left)).GetMerge().GetTablet()
	r.do(2, mergeOf(left.Epoch, pb.MergeRequest_STEP_RELEASE, nil))
	if e := r.try(2, mergeOf(left.Epoch, pb.MergeRequest_STEP_TAKE, frozen)).GetError(); e.GetCode() != pb.Error_CODE_WRONG_TABLET {
		t.Errorf("TAKEN-LATE: %v", e)
	}
	r.do(3, mergeOf(frozen.Epoch, pb.MergeRequest_STEP_RELEASE, nil))
	r.do(3, onePhaseOf(r.take(1), put("x", "1")))
	if e := r.try(3, mergeOf(frozen.Epoch, pb.MergeRequest_STEP_RELEASE, nil)).GetError(); e.GetCode() != pb.Error_CODE_WRONG_TABLET {
		t.Errorf("a second release: %v", e)
	}
}

// TestMergeKeepsWhatBothPromised: the tablet that has taken another's rows has their locks and
// notifications, and the higher of both bounds and catalogues; requests under either old epoch are
// refused, and it does not split before it is released.
func TestMergeKeepsWhatBothPromised(t *testing.T) {
	r, left, right := newMergeRig(t)
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	r.do(3, onePhaseOf(r.take(1), put("x", "1")))
	below := r.take(1)
	bound := r.take(1)
	r.do(3, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	r.do(3, collectOf(&pb.CollectRequest{Safepoint: uint64(bound)}))
	r.do(3, catalogueOf(5))
	statusOf(t, "a prewrite", r.do(3, prewriteOf(r.take(1), "y", "1")), pb.Status_STATUS_OK)
	frozen := r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left)).GetMerge().GetTablet()
	merged := r.do(2, mergeOf(left.Epoch, pb.MergeRequest_STEP_TAKE, frozen)).GetMerge().GetTablet()
	r.awaitLeader()
	if merged.Epoch <= frozen.Epoch || !merged.EndUnbounded {
		t.Fatalf("merged to %v, want a later epoch and no end", merged)
	}
	at := r.take(1)
	statusOf(t, "a row of the left", r.do(2, getOf(at, "a")), pb.Status_STATUS_OK)
	statusOf(t, "a row of the right", r.do(2, getOf(at, "x")), pb.Status_STATUS_OK)
	statusOf(t, "a lock of the right", r.do(2, getOf(at, "y")), pb.Status_STATUS_LOCKED)
	if g := r.do(2, getOf(below, "x")).GetGet(); g.Results[0].Status != pb.Status_STATUS_TOO_OLD {
		t.Errorf("MERGED-BOUND: a read below the right tablet's bound: %v", g)
	}
	s := r.status(2)
	if s.Bound != uint64(bound) || s.Safepoint != uint64(bound) || s.CatalogueVersion != 5 {
		t.Errorf("MERGED-BOUND: bound %d, safepoint %d, catalogue %d", s.Bound, s.Safepoint, s.CatalogueVersion)
	}
	req := onePhaseOf(r.take(1), put("a", "2"))
	req.Epoch = left.Epoch
	if e := r.try(2, req).GetError(); e.GetCode() != pb.Error_CODE_WRONG_TABLET {
		t.Errorf("under the old epoch: %v", e)
	}
	split := &pb.TabletRequest{Op: &pb.TabletRequest_Split{
		Split: &pb.SplitRequest{Table: 16, Row: []byte("p"), NewTabletId: 4},
	}}
	if e := r.try(2, split).GetError(); !strings.Contains(e.GetMessage(), "has just taken the rows") {
		t.Errorf("TAKEN-FORGOTTEN: a split before the release: %v", e)
	}
	r.do(2, mergeOf(merged.Epoch, pb.MergeRequest_STEP_RELEASE, nil))
	r.do(2, split)
	r.awaitLeader()
}

// TestFrozenIsDurable: a tablet that reports that it is frozen is still frozen after an immediate
// power loss, without a request.
func TestFrozenIsDurable(t *testing.T) {
	r, left, right := newMergeRig(t)
	r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left))
	log, err := r.store.OpenLog(3)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := log.Checkpoint(); err != nil || at < r.status(3).AppliedIndex {
		t.Error("FROZEN-IN-MEMORY: it reports that it is frozen, and a power loss would undo it")
	}
}
