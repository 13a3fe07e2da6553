package tablet

import (
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// An entry that nobody awaits is delayed until the next one (Config.MaxDelay). In these tests the
// delay by itself would last for an hour.

func newDelayedRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, store.Options{InMemory: true})
	r.maxDelay = time.Hour
	r.restart(2)
	return r
}

// delayCommit prewrites a row and sends its commit, which is evaluated and delayed.
func (r *rig) delayCommit(row string) (start mvcc.Timestamp, committed <-chan result) {
	r.tb.Helper()
	start = r.take(1)
	r.do(2, prewriteOf(start, row, "1"))
	before := r.visible(2)
	committed = r.start(2, commitOf(start, r.take(1), row))
	r.until(2, "the commit is evaluated", func(s *pb.StatusResponse) bool { return s.Mutations > before.Mutations })
	if s := r.visible(2); s.LastIndex != before.LastIndex {
		r.tb.Error("the commit is not delayed")
	}
	return start, committed
}

// TestDelayedCommitSharesASync: each replica writes the commit of a decided transaction and the next
// transaction's locks to its log at once.
func TestDelayedCommitSharesASync(t *testing.T) {
	g := startGroup(&cluster{tb: t, nodes: map[uint64]*member{}, maxDelay: time.Hour}, 3, 3, 0)
	leader := g.elect(groupTablet, 1, 2, 3)
	start := g.take(1)
	statusOf(t, "the prewrite", g.at(leader, groupTablet, prewriteOf(start, "a", "1")), pb.Status_STATUS_OK)
	g.even(groupTablet, 1, 2, 3)
	before := map[uint64]uint64{}
	for id, m := range g.nodes {
		before[id] = m.store.Stats().Log.Batches
	}
	committed := g.delayCommit(leader, start)
	statusOf(t, "the next prewrite", g.at(leader, groupTablet, asyncPrewriteOf(g.take(1), "b", "2")), pb.Status_STATUS_OK)
	statusOf(t, "the commit", await(t, committed), pb.Status_STATUS_OK)
	g.even(groupTablet, 1, 2, 3)
	for id, m := range g.nodes {
		if n := m.store.Stats().Log.Batches - before[id]; n != 1 {
			t.Errorf("node %d has synced its log %d times", id, n)
		}
	}
}

// TestDelayedCommitIsFirst: every replica applies a delayed commit before the next transaction's lock of the
// same row. Catches BROKEN=delayed_after.
func TestDelayedCommitIsFirst(t *testing.T) {
	g := startGroup(&cluster{tb: t, nodes: map[uint64]*member{}, maxDelay: time.Hour}, 3, 3, 0)
	leader := g.elect(groupTablet, 1, 2, 3)
	start := g.take(1)
	g.do(groupTablet, prewriteOf(start, "a", "1"))
	g.even(groupTablet, 1, 2, 3)
	committed := g.delayCommit(leader, start)
	next := g.take(1)
	statusOf(t, "the next prewrite", g.at(leader, groupTablet, prewriteOf(next, "a", "2")), pb.Status_STATUS_OK)
	statusOf(t, "the commit", await(t, committed), pb.Status_STATUS_OK)
	g.even(groupTablet, 1, 2, 3)
	g.cut(leader)
	g.elect(groupTablet, g.others(leader)...)
	got := g.do(groupTablet, getOf(g.take(1), "a"), leader).GetGet().Results[0]
	if got.Status != pb.Status_STATUS_LOCKED || got.Lock.GetLock().GetStartTs() != uint64(next) {
		t.Errorf("DELAYED-AFTER: on the next leader the row that transaction %d has locked is %v", next, got)
	}
}

// TestDelayEnds: whatever may wait for a delayed commit ends the delay, and sees the commit.
func TestDelayEnds(t *testing.T) {
	now := func(r *rig) mvcc.Timestamp { return r.take(1) }
	for name, request := range map[string]func(r *rig, start mvcc.Timestamp) *pb.TabletRequest{
		"status":           func(r *rig, start mvcc.Timestamp) *pb.TabletRequest { return statusOfTxn(start, now(r), "a") },
		"rollback":         func(_ *rig, start mvcc.Timestamp) *pb.TabletRequest { return rollbackOf(start, "a") },
		"commit again":     func(r *rig, start mvcc.Timestamp) *pb.TabletRequest { return commitOf(start, now(r), "a") },
		"prewrite":         func(r *rig, _ mvcc.Timestamp) *pb.TabletRequest { return prewriteOf(now(r), "a", "2") },
		"async prewrite":   func(r *rig, _ mvcc.Timestamp) *pb.TabletRequest { return asyncPrewriteOf(now(r), "a", "2") },
		"one-phase commit": func(r *rig, _ mvcc.Timestamp) *pb.TabletRequest { return onePhaseOf(now(r), put("a", "2")) },
		"split":            func(*rig, mvcc.Timestamp) *pb.TabletRequest { return splitOf("m", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newDelayedRig(t)
			start, committed := r.delayCommit("a")
			got := r.do(2, request(r, start))
			statusOf(t, "the commit", await(t, committed), pb.Status_STATUS_OK)
			if name == "status" {
				statusOf(t, "the status", got, pb.Status_STATUS_COMMITTED)
			}
			if got := r.do(2, getOf(r.take(1), "a")).GetGet().Results[0]; name == "split" && string(got.Value) != "1" {
				t.Errorf("after the split the row is %v", got)
			}
		})
	}
}

// delayCommit sends the commit of the transaction that has locked row a, which is evaluated and delayed.
func (g *cluster) delayCommit(leader uint64, start mvcc.Timestamp) (committed <-chan result) {
	g.tb.Helper()
	evaluated := g.status(leader, groupTablet).Mutations
	committed = g.tell(leader, groupTablet, commitOf(start, g.take(1), "a"))
	g.wait("the commit is evaluated", func() bool { return g.status(leader, groupTablet).Mutations > evaluated })
	return committed
}

// TestDelayEndsWithLeadership: a transfer waits for the delayed commit, and a replica that stops answers it.
func TestDelayEndsWithLeadership(t *testing.T) {
	g := startGroup(&cluster{tb: t, nodes: map[uint64]*member{}, maxDelay: time.Hour}, 3, 3, 0)
	leader := g.elect(groupTablet, 1, 2, 3)
	for _, stops := range []bool{false, true} {
		start := g.take(1)
		g.do(groupTablet, prewriteOf(start, "a", "1"))
		g.even(groupTablet, 1, 2, 3)
		committed := g.delayCommit(leader, start)
		if stops {
			g.nodes[leader].stop(groupTablet)
		} else {
			g.transfer(leader%3 + 1)
		}
		if code := g.code(committed); (code != pb.Error_CODE_UNSPECIFIED) != stops {
			t.Errorf("stopped %v: the commit is answered %v", stops, code)
		}
		leader = leader%3 + 1
	}
}

// TestAwaitedIsNotDelayed: a commit that observers or subscribers wait for is proposed at once.
func TestAwaitedIsNotDelayed(t *testing.T) {
	for name, prepare := range map[string]func(r *rig){
		"observed": func(r *rig) { r.observe(1) },
		"followed": func(r *rig) { r.recording(r.take(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newDelayedRig(t)
			prepare(r)
			start := r.take(1)
			r.do(2, prewriteOf(start, "a", "1"))
			statusOf(t, "the commit", r.do(2, commitOf(start, r.take(1), "a")), pb.Status_STATUS_OK)
		})
	}
}

// TestDelayedCommitsFollowEachOther: a second commit that nobody awaits is proposed with the delayed one. Catches
// BROKEN=delayed_twice.
func TestDelayedCommitsFollowEachOther(t *testing.T) {
	g := startGroup(&cluster{tb: t, nodes: map[uint64]*member{}, maxDelay: time.Hour}, 3, 3, 0)
	leader := g.elect(groupTablet, 1, 2, 3)
	first, second := g.take(1), g.take(1)
	g.do(groupTablet, prewriteOf(first, "a", "1"))
	g.do(groupTablet, prewriteOf(second, "b", "2"))
	g.even(groupTablet, 1, 2, 3)
	commits := []<-chan result{g.delayCommit(leader, first)}
	commits = append(commits, g.tell(leader, groupTablet, commitOf(second, g.take(1), "b")))
	for i, committed := range commits {
		if code := g.code(committed); code != pb.Error_CODE_UNSPECIFIED {
			t.Fatalf("DELAYED-TWICE: commit %d is answered %v", i+1, code)
		}
	}
	g.even(groupTablet, 1, 2, 3)
	g.cut(leader)
	g.elect(groupTablet, g.others(leader)...)
	for row, want := range map[string]string{"a": "1", "b": "2"} {
		if got := g.do(groupTablet, getOf(g.take(1), row), leader).GetGet().Results[0]; string(got.Value) != want {
			t.Errorf("DELAYED-TWICE: on the next leader row %s is %v", row, got)
		}
	}
}
