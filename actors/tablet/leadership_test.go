package tablet

import (
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/store"
)

// TestPublishedLeadershipSaysTermAndMark: the term and mark that it returns equal the tablet's answer
// to the oracle.
func TestPublishedLeadershipSaysTermAndMark(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	for _, raise := range []uint64{0, 1000, 500, 2000} {
		asked := r.do(1, &pb.TabletRequest{
			Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{RaiseTo: raise}},
		}).GetMark()
		// after the turn of the apply
		now := r.do(1, &pb.TabletRequest{
			Op: &pb.TabletRequest_Mark{Mark: &pb.MarkRequest{}},
		}).GetMark()
		term, mark, _, ok := r.alone.Confirmed()
		if !ok || term != now.Term || mark != now.Mark || mark < asked.Mark {
			t.Errorf("said term %d, mark %d, %v; the tablet answers %v, after raising %v", term,
				mark, ok, now, asked)
		}
	}
}

// TestPublishedLeadershipTakesBack: a tablet that loses its leadership withdraws them before it can be
// observed.
func TestPublishedLeadershipTakesBack(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	if _, _, _, ok := r.alone.Confirmed(); !ok {
		t.Fatal("a tablet that leads as the only voter does not report it")
	}
	if err := r.system.Root.StopFuture(r.port(1).PID()).Wait(); err != nil {
		t.Fatal(err)
	}
	if term, _, _, ok := r.alone.Confirmed(); ok {
		t.Errorf("STALE-LEADER: a tablet that has stepped down still reports that it leads in term %d",
			term)
	}
}

// TestPublishedLeadershipSaysNothingAmongSeveral: leadership among several voters needs their confirmation.
func TestPublishedLeadershipSaysNothingAmongSeveral(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	meta := newTablet(r.system, r.store, r.logs, r.readers, 1, r,
		Config{Leadership: &PublishedLeadership{}, Logger: slog.New(slog.DiscardHandler)})
	if err := meta.open(); err != nil {
		t.Fatal(err)
	}
	meta.leading = true
	if meta.publishLeadership(); !reportsLeadership(meta) {
		t.Error("the only voter reports nothing")
	}
	meta.group.ApplyConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: proto.Uint64(2)},
	}}, meta.descriptor)
	if meta.publishLeadership(); reportsLeadership(meta) {
		t.Error("one of two voters reports that it leads")
	}
}

func reportsLeadership(t *Tablet) bool {
	_, _, _, ok := t.cfg.Leadership.Confirmed()
	return ok
}
