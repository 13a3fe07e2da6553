package tablet

import (
	"slices"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// ended waits for the end of the turn in which what was answered last became visible.
func ended(r *rig, tablet uint64) *pb.StatusResponse {
	r.tb.Helper()
	r.visible(tablet)
	return r.do(tablet, askStatus()).GetStatus()
}

// checkIdleHints compares the hints with the disk. They must never claim too much; after a walk
// they must be complete.
func checkIdleHints(r *rig, tablet uint64, when string, walked bool) {
	r.tb.Helper()
	s := ended(r, tablet)
	span := mvcc.Span{
		Table: 16, Start: string(s.Tablet.StartRow), End: string(s.Tablet.EndRow),
		HasEnd: !s.Tablet.EndUnbounded,
	}
	snap := r.store.Snap()
	defer snap.Close()
	var there waiting
	for _, o := range observedColumns {
		if err := there.count(snap, o, span); err != nil {
			r.tb.Fatal(err)
		}
	}
	clean, settled := there.pending == 0, there.intents == 0 && s.Locks == 0
	if saysClean, saysSettled := r.idleHints.IsClean(tablet),
		r.idleHints.IsSettled(tablet); (saysClean && !clean) || (saysSettled && !settled) {
		r.tb.Fatalf("%s: tablet %d has %d dirty cells, %d intents and %d locks: clean %t, settled %t", when, tablet, there.pending, there.intents,
			s.Locks, saysClean, saysSettled)
	}
	if !walked {
		return
	}
	for end := time.Now().Add(10 * time.Second); r.idleHints.IsClean(tablet) != clean ||
		r.idleHints.IsSettled(tablet) != settled; ended(r, tablet) {
		if time.Now().After(end) { // a worker may be counting
			r.tb.Fatalf("%s: tablet %d has %d dirty cells, %d intents and %d locks, and is not known to be clean, settled", when, tablet,
				there.pending, there.intents, s.Locks)
		}
	}
}

func (r *rig) listed(tablet uint64) bool {
	_, ids := r.idleHints.CleanTablets(1 << 20)
	return slices.Contains(ids, tablet)
}

// TestIdleHints: a tablet is not called clean before its observed columns were walked, a change of
// the hints increases the version, a tablet with locks may be clean but is not settled, and a
// stopped replica publishes nothing.
func TestIdleHints(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	walk := func() {
		r.do(2, &pb.TabletRequest{
			Op: &pb.TabletRequest_Walk{
				Walk: &pb.WalkRequest{
					Group: uint32(mvcc.GroupNotify), Table: 16, Column: []byte("c"),
				},
			},
		})
	}
	check := func(what string, clean, settled, news bool, do func()) {
		t.Helper()
		before := r.idleHints.Version()
		do()
		ended(r, 2)
		if got := r.idleHints.IsClean(2); got != clean || r.listed(2) != clean {
			t.Errorf("%s: clean %t, listed %t", what, got, r.listed(2))
		}
		if got := r.idleHints.IsSettled(2); got != settled {
			t.Errorf("%s: settled %t", what, got)
		}
		if got := r.idleHints.Version() != before; got != news {
			t.Errorf("%s: a new version: %t", what, got)
		}
	}
	ended(r, 2)
	check("a catalogue with columns that nobody has looked at", false, false, true, func() {
		observe(r, 2)
	})
	check("a walk", true, true, true, walk)
	check("another walk", true, true, false, walk)
	at := r.take(1)
	check("a lock", true, false, false, func() { r.do(2, prewriteOf(at, "a", "v")) })
	check("a commit of what is observed", false, true, true, func() {
		r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
			StartTs: uint64(at), CommitTs: uint64(r.take(1)), Cells: []*pb.Cell{cellOf("a")},
		}}})
	})
	check("a new leader", false, false, true, func() { reopen(t, r, 2, 0) })
	check("a walk of the new leader", false, true, false, walk)
	check("the end of the notification", true, true, true, func() {
		r.do(2, &pb.TabletRequest{
			Op: &pb.TabletRequest_ClearNotify{
				ClearNotify: &pb.ClearNotifyRequest{Cell: cellOf("a"), UpTo: uint64(r.take(1))},
			},
		})
	})
	if _, ids := r.idleHints.CleanTablets(1); len(ids) != 1 {
		t.Errorf("asked for one, got %v", ids)
	}
	if err := r.system.Root.StopFuture(r.port(2).PID()).Wait(); err != nil {
		t.Fatal(err)
	}
	if r.listed(2) || r.idleHints.IsClean(2) || r.idleHints.IsSettled(2) {
		t.Error("a replica that has stopped speaks")
	}
}

// TestIdleHintsOfLeader: only the leader publishes hints, and a leader that has transferred the
// tablet withdraws them.
func TestIdleHintsOfLeader(t *testing.T) {
	g := newGroup(t, 3, 3, testTick)
	says := func() (nodes []uint64) {
		for id, m := range g.nodes {
			if m.idleHints.IsClean(groupTablet) {
				nodes = append(nodes, id)
			}
		}
		return nodes
	}
	lead := g.leader(groupTablet)
	g.wait("the leader says that the tablet is clean", func() bool {
		return slices.Equal(says(), []uint64{lead})
	})
	next := g.others(lead)[0]
	g.do(groupTablet, transferTo(next))
	g.wait("the next leader alone says so", func() bool {
		return slices.Equal(says(), []uint64{next})
	})
}

// TestIdleHintsVersions: every change of a tablet's hints increases their version.
func TestIdleHintsVersions(t *testing.T) {
	var b IdleHints
	n := b.attach(2)
	for _, is := range []uint32{isSettled, isClean | isSettled, isClean, 0} {
		clean, settled := b.IsClean(2), b.IsSettled(2)
		version, settledVersion := b.Version(), b.SettledVersion()
		b.put(n, is)
		if (b.IsClean(2) != clean) != (b.Version() != version) {
			t.Errorf("clean %v, then %v: version %d, then %d", clean, b.IsClean(2), version, b.Version())
		}
		if (b.IsSettled(2) != settled) != (b.SettledVersion() != settledVersion) {
			t.Errorf("settled %v, then %v: version %d, then %d", settled, b.IsSettled(2), settledVersion,
				b.SettledVersion())
		}
	}
}
