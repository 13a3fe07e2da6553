package tablet

import (
	"math"
	"sync"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// Mutations are answered once their entry is committed (docs/adr/0063): what follows must
// neither miss them nor lose them while no store shows them.

// readRaw reads a cell without a transaction.
func readRaw(row string) *pb.TabletRequest {
	return &pb.TabletRequest{
		Op: &pb.TabletRequest_RawGet{RawGet: &pb.RawGetRequest{Cells: []*pb.Cell{cellOf(row)}}},
	}
}

// unanswered fails the test if the operation is answered by the time at which the read workers have
// executed their queued jobs.
func unanswered(t *testing.T, r *rig, what string, answer <-chan result) {
	t.Helper()
	ended := r.do(2, askStatus()).GetStatus()
	for queued := 1; queued > 0; queued, _ = r.readers.Waiting() {
		var met sync.WaitGroup
		met.Add(rigReaders)
		for range rigReaders { // every worker is between two jobs
			lane, _ := r.readers.Lanes()
			lane.Submit(func() {
				met.Done()
				met.Wait()
			})
		}
		met.Wait()
	}
	select {
	case a := <-answer:
		t.Errorf("STALE-READ: %s is answered at index %d of %d: %v", what, ended.AppliedIndex, ended.LastIndex, a.Value)
	default:
	}
}

// TestReadsWaitForWhatIsAnswered: a write, a lock and a commit are answered while nothing is
// applied. Reads that arrive then, with and without a transaction, and a one-phase commit of
// the same cell wait for the effects and see them; a status is evaluated over them at once.
// Catches BROKEN=read_unapplied.
func TestReadsWaitForWhatIsAnswered(t *testing.T) {
	r := newPipelinedRig(t, store.Options{InMemory: true}, 8)
	r.do(2, rawWrite("raw", "old"))
	r.visible(2)
	release := r.holdApplies()
	start := r.take(1)
	r.do(2, rawWrite("raw", "new"))
	statusOf(t, "the prewrite", r.do(2, prewriteOf(start, "a", "new")), pb.Status_STATUS_OK)
	statusOf(t, "the commit", r.do(2, commitOf(start, r.take(1), "a")), pb.Status_STATUS_OK)
	statusOf(t, "the status", r.do(2, statusOfTxn(start, r.take(1), "a")), pb.Status_STATUS_COMMITTED)
	at := r.take(1)
	mvccRead, rawRead := r.start(2, getOf(at, "a")), r.start(2, readRaw("raw"))
	one := r.start(2, onePhaseOf(r.take(1), put("a", "newest")))
	r.until(2, "the reads have come", func(s *pb.StatusResponse) bool { return s.Reads >= 2 })
	unanswered(t, r, "the read of the committed cell", mvccRead)
	unanswered(t, r, "the read of the raw cell", rawRead)
	unanswered(t, r, "the one-phase commit", one)
	release()
	if t.Failed() {
		return
	}
	if got := await(t, mvccRead).GetGet().Results[0]; string(got.Value) != "new" {
		t.Errorf("STALE-READ: the committed cell is %v", got)
	}
	if got := await(t, rawRead).GetRawGet().Values[0]; string(got.Value) != "new" {
		t.Errorf("STALE-READ: the raw cell is %v", got)
	}
	statusOf(t, "the one-phase commit", await(t, one), pb.Status_STATUS_OK)
}

// TestChangesOfStateAreAnsweredWhenVisible: the oracle's mark, the catalogue and the bound are
// read without an index, so their changes are answered only when they have taken effect. A write
// behind them is answered before.
func TestChangesOfStateAreAnsweredWhenVisible(t *testing.T) {
	r := newPipelinedRig(t, store.Options{InMemory: true}, 8)
	release := r.holdApplies()
	answers := map[string]<-chan result{
		"the mark": r.start(MetaTabletID, &pb.TabletRequest{Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: 7}}}),
		"the catalogue": r.start(2, &pb.TabletRequest{Op: &pb.TabletRequest_SetCatalogue{
			SetCatalogue: &pb.SetCatalogueRequest{Catalogue: &pb.Catalogue{Version: 9}},
		}}),
		"the bound": r.start(2, collectOf(&pb.CollectRequest{Bound: uint64(r.take(1))})),
	}
	r.until(2, "both are proposed", func(s *pb.StatusResponse) bool { return s.Proposals >= 2 })
	r.do(2, rawWrite("r", "v"))
	for what, answer := range answers {
		select {
		case a := <-answer:
			t.Errorf("%s is answered before it is visible: %v", what, a.Value)
		default:
		}
	}
	release()
	for _, answer := range answers {
		await(t, answer)
	}
}

// TestAnsweredOutlivesTheLeader: a write that was answered before the leader applied it is read
// from the next leader.
func TestAnsweredOutlivesTheLeader(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	g.write(groupTablet, "a", "old")
	old := g.leader(groupTablet)
	release := g.nodes[old].holdApplies()
	defer release()
	start := g.take(1)
	if r := g.at(old, groupTablet, onePhaseOf(start, put("a", "new"))); r.GetMutation().GetStatus() != pb.Status_STATUS_OK {
		t.Fatalf("the write is answered %v, want OK", r)
	}
	if s := g.status(old, groupTablet); s.AppliedIndex == s.LastIndex {
		t.Fatal("it is applied: the test tests nothing")
	}
	g.cut(old)
	g.leader(groupTablet, old)
	if got := g.read(groupTablet, "a", old); got != "new" {
		t.Errorf("the next leader reads %q", got)
	}
}

// TestAnsweredOutlivesACrash: a write that was answered before the only replica applied it is
// there after a crash right then.
func TestAnsweredOutlivesACrash(t *testing.T) {
	g := newGroupOnDisk(t, 1, 1, testTick)
	m := g.nodes[1]
	g.write(groupTablet, "a", "old")
	g.even(groupTablet, 1)
	release := m.holdApplies()
	g.write(groupTablet, "a", "new")
	if got := g.stored(1, "a"); got != "old" {
		t.Fatalf("a is %q: the test tests nothing", got)
	}
	crashed := m.image()
	release()
	m.goBack(crashed)
	m.spawn(groupTablet)
	g.leader(groupTablet)
	if got := g.read(groupTablet, "a"); got != "new" {
		t.Errorf("after the crash a is %q", got)
	}
}

// TestAnsweredWaitsForRoom: the disk fills between the answer and the apply. Reads wait until
// there is room, and see what was answered.
func TestAnsweredWaitsForRoom(t *testing.T) {
	r, free := fullRig(t)
	release := r.holdApplies()
	r.do(2, rawWrite("r", "v"))
	free.Store(freeNone)
	look(r.store)
	release()
	r.until(2, "the effects wait for room", func(*pb.StatusResponse) bool { return r.logs.Full() })
	read := r.start(2, readRaw("r"))
	r.until(2, "the read has come", func(s *pb.StatusResponse) bool { return s.Reads >= 1 })
	unanswered(t, r, "the read", read)
	free.Store(math.MaxUint64)
	look(r.store)
	if got := await(t, read).GetRawGet().Values[0]; string(got.Value) != "v" {
		t.Errorf("r is %v, want v", got)
	}
}
