package tablet

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// asyncPrewriteOf is the prewrite of the primary, row, of an asynchronous commit that also writes
// another row elsewhere.
func asyncPrewriteOf(start mvcc.Timestamp, row, value string) *pb.TabletRequest {
	req := prewriteOf(start, row, value)
	p := req.GetPrewrite()
	p.Async, p.Secondaries = true, []*pb.Cell{cellOf("elsewhere")}
	return req
}

// TestAsyncPrewriteReserves: while the oracle is asked for the timestamp of an asynchronous commit's
// locks, its cells are reserved: a reader waits, since its timestamp may be the greater one. Catches
// BROKEN=async_unreserved.
func TestAsyncPrewriteReserves(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	prewritten := r.start(2, asyncPrewriteOf(r.take(1), "a", "new"))
	grant := <-asked
	at := r.take(1)
	early := r.start(2, getOf(at, "a"))
	r.do(2, getOf(at, "b")) // behind the other read
	select {
	case a := <-early:
		t.Errorf("ASYNC-UNRESERVED: a read at %d was answered before the locks have their timestamp: %v", at, a.Value)
	default:
	}
	grant(nil)
	least := mvcc.Timestamp(await(t, prewritten).GetMutation().MinCommitTs)
	if least <= at {
		t.Fatalf("the locks' timestamp is %d, that of an earlier read %d", least, at)
	}
	if t.Failed() {
		return
	}
	if got := await(t, early).GetGet().Results[0]; got.Status != pb.Status_STATUS_OK || got.Found {
		t.Errorf("a read below the locks' timestamp: %v", got)
	}
	for at, want := range map[mvcc.Timestamp]pb.Status{
		least - 1: pb.Status_STATUS_OK, least: pb.Status_STATUS_LOCKED, least + 1: pb.Status_STATUS_LOCKED,
	} {
		if got := r.do(2, getOf(at, "a")).GetGet().Results[0]; got.Status != want {
			t.Errorf("a read at %d of a cell locked at %d: %v", at, least, got)
		}
	}
}

// TestAsyncPrewriteTwice: copies of a prewrite get one timestamp, whether they arrive while the
// oracle is asked or later.
func TestAsyncPrewriteTwice(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	start := r.take(1)
	first, copied := r.start(2, asyncPrewriteOf(start, "a", "v")), r.start(2, asyncPrewriteOf(start, "a", "v"))
	(<-asked)(nil)
	want := await(t, first).GetMutation().MinCommitTs
	late := r.do(2, asyncPrewriteOf(start, "a", "v"))
	for _, got := range []uint64{await(t, copied).GetMutation().MinCommitTs, late.GetMutation().MinCommitTs} {
		if got != want || want == 0 {
			t.Errorf("a copy has the timestamp %d, the first one %d", got, want)
		}
	}
}

// TestAsyncRollbackWaits: a rollback that arrives while the oracle is asked finds the lock.
func TestAsyncRollbackWaits(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := r.asking()
	start := r.take(1)
	prewritten := r.start(2, asyncPrewriteOf(start, "a", "v"))
	grant := <-asked
	ended := r.start(2, rollbackOf(start, "a"))
	grant(nil)
	least := await(t, prewritten).GetMutation().MinCommitTs
	if got := await(t, ended).GetMutation(); got.Status != pb.Status_STATUS_LIVE || got.MinCommitTs != least {
		t.Errorf("a rollback of a locked cell: %v, want it live at %d", got, least)
	}
	status := r.do(2, statusOfTxn(start, mvcc.MaxTimestamp-2, "a")).GetMutation()
	if status.Status != pb.Status_STATUS_LIVE || len(status.Locks) != 1 || len(status.Locks[0].Lock.Secondaries) != 1 {
		t.Errorf("the status of the primary: %v", status)
	}
}

// TestAsyncUnsettled: the lock of an asynchronous commit keeps the tablet from confirming that
// everything below the bound is settled, and so the safepoint below it. Catches
// BROKEN=async_unsettled.
func TestAsyncUnsettled(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	start := r.take(1)
	r.do(2, asyncPrewriteOf(start, "a", "v"))
	bound := uint64(r.take(1))
	r.do(2, collectOf(&pb.CollectRequest{Bound: bound}))
	got := r.do(2, collectOf(&pb.CollectRequest{Confirm: bound})).GetCollect()
	if got.Confirmed || len(got.Unsettled) != 1 {
		t.Errorf("ASYNC-UNSETTLED: the tablet confirms a bound above an undecided lock: %v", got)
	}
}

// TestAsyncPrewriteOfAnOldLeader: a leader that is replaced between the reservation and the oracle's
// answer leaves no lock, also if it leads again when the answer arrives: the leader in between has
// served readers above that timestamp. Catches BROKEN=async_old_lead.
func TestAsyncPrewriteOfAnOldLeader(t *testing.T) {
	for _, again := range []bool{true, false} {
		g := newGroup(t, 3, 3, 0)
		old := g.elect(groupTablet, 1, 2, 3)
		g.even(groupTablet, 1, 2, 3)
		g.mu.Lock()
		g.held = make(chan func(), 8)
		g.mu.Unlock()
		prewritten := g.tell(old, groupTablet, asyncPrewriteOf(g.take(1), "a", "v"))
		grant := <-g.held
		g.mu.Lock()
		g.held = nil
		g.mu.Unlock()
		g.cut(old)
		lead := g.elect(groupTablet, g.others(old)...)
		at := g.take(1)
		read := func(except ...uint64) pb.Status {
			return g.do(groupTablet, getOf(at, "a"), except...).GetGet().GetResults()[0].GetStatus()
		}
		if got := read(old); got != pb.Status_STATUS_OK {
			t.Errorf("the new leader reads %v", got)
		}
		if again {
			g.heal(old, lead)
			g.transfer(old)
			read(g.others(old)...) // it serves
		}
		grant()
		if !again {
			g.status(old, groupTablet) // it has handled the answer
			g.heal(old, lead)
		}
		if code := g.code(prewritten); code == pb.Error_CODE_UNSPECIFIED {
			t.Errorf("ASYNC-OLD-LEAD: the prewrite succeeded after a read at %d; again %v", at, again)
		}
		if got := read(); got != pb.Status_STATUS_OK {
			t.Errorf("ASYNC-OLD-LEAD: a cell that was read at %d has a lock for that read: %v; again %v", at, got, again)
		}
	}
}

// transfer makes a node the leader.
func (g *cluster) transfer(to uint64) {
	g.tb.Helper()
	g.wait("the leader hands over", func() bool {
		return g.status(to, groupTablet).GetLeader() ||
			g.at(g.leader(groupTablet), groupTablet, transferTo(to)).GetTransferLeader().GetLeaderNode() == to
	})
}

// TestAsyncLocksOutliveLeadersAndSnapshots: a new leader, and a replica that starts from a snapshot,
// know the whole lock.
func TestAsyncLocksOutliveLeadersAndSnapshots(t *testing.T) {
	g := newGroup(t, 4, 3, testTick)
	start := g.take(1)
	least := g.do(groupTablet, asyncPrewriteOf(start, "a", "v")).GetMutation().MinCommitTs
	g.even(groupTablet, 1, 2, 3)
	status := func(node uint64) {
		t.Helper()
		g.transfer(node)
		got := g.do(groupTablet, statusOfTxn(start, mvcc.MaxTimestamp-2, "a")).GetMutation()
		if len(got.GetLocks()) != 1 || got.Locks[0].Lock.MinCommitTs != least || len(got.Locks[0].Lock.Secondaries) != 1 {
			t.Errorf("node %d: %v", node, got)
		}
	}
	lead := g.leader(groupTablet)
	status(lead%3 + 1)
	g.change(groupTablet, step(addLearner, 4))
	g.caughtUp(groupTablet, 4)
	g.change(groupTablet, step(promote, 4))
	g.even(groupTablet, 1, 2, 3, 4)
	status(4)
}

// TestAsyncLocksSurviveSplitAndMerge: the halves of a split tablet, and the tablet that they are merged
// into, report the locks of an asynchronous commit with their timestamps and the primary's cells.
func TestAsyncLocksSurviveSplitAndMerge(t *testing.T) {
	r, left, right := newMergeRig(t)
	start := r.take(1)
	least := map[string]uint64{}
	primary := asyncPrewriteOf(start, "a", "v")
	primary.GetPrewrite().Secondaries = []*pb.Cell{cellOf("x")}
	secondary := asyncPrewriteOf(start, "x", "v")
	secondary.GetPrewrite().Primary, secondary.GetPrewrite().Secondaries = cellOf("a"), nil
	least["a"] = r.do(2, primary).GetMutation().MinCommitTs
	least["x"] = r.do(3, secondary).GetMutation().MinCommitTs
	check := func(when string, tablets map[string]uint64) {
		t.Helper()
		for row, tablet := range tablets {
			got := r.do(tablet, rollbackOf(start, row)).GetMutation()
			if got.Status != pb.Status_STATUS_LIVE || got.MinCommitTs != least[row] {
				t.Errorf("%s: %s: %v, want a lock at %d", when, row, got, least[row])
			}
		}
		status := r.do(tablets["a"], statusOfTxn(start, mvcc.MaxTimestamp-2, "a")).GetMutation()
		if len(status.Locks) != 1 || len(status.Locks[0].Lock.Secondaries) != 1 {
			t.Errorf("%s: the status of the primary: %v", when, status)
		}
	}
	check("in two tablets", map[string]uint64{"a": 2, "x": 3})
	frozen := r.do(3, mergeOf(right.Epoch, pb.MergeRequest_STEP_FREEZE, left)).GetMerge().GetTablet()
	merged := r.do(2, mergeOf(left.Epoch, pb.MergeRequest_STEP_TAKE, frozen)).GetMerge().GetTablet()
	r.awaitLeader()
	check("merged", map[string]uint64{"a": 2, "x": 2})
	r.do(2, mergeOf(merged.Epoch, pb.MergeRequest_STEP_RELEASE, nil))
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Split{
		Split: &pb.SplitRequest{Table: 16, Row: []byte("c"), NewTabletId: 4},
	}})
	r.awaitLeader()
	check("split", map[string]uint64{"a": 2, "x": 4})
}

// TestAsyncPrewriteOfLockedCells: a prewrite of which the transaction has locked some cells is refused,
// and their locks stay as they are: its reservation would replace them. Catches BROKEN=async_mixed.
func TestAsyncPrewriteOfLockedCells(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	start := r.take(1)
	least := r.do(2, asyncPrewriteOf(start, "a", "v")).GetMutation().MinCommitTs
	mixed := asyncPrewriteOf(start, "a", "v")
	p := mixed.GetPrewrite()
	p.Writes = append(p.Writes, &pb.CellWrite{Cell: cellOf("b"), Kind: pb.Kind_KIND_PUT, Value: []byte("v")})
	if resp := (<-r.start(2, mixed)).Value; resp.GetError().GetCode() != pb.Error_CODE_INVALID {
		t.Errorf("a prewrite of a locked cell and another one: %v", resp)
	}
	got := r.do(2, getOf(r.take(1), "a")).GetGet().Results[0]
	if got.Status != pb.Status_STATUS_LOCKED || got.Lock.GetLock().GetMinCommitTs() != least || least == 0 {
		t.Errorf("ASYNC-MIXED: the cell locked with the timestamp %d is %v", least, got)
	}
}
