package tablet

import (
	"fmt"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/percolator-go/percolator/actors/tablet/history"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// restart stops a tablet and opens it again from the store; it returns the replica for tests that
// inspect it.
func (r *rig) restart(tablet uint64) *Tablet {
	r.tb.Helper()
	if err := r.system.Root.StopFuture(r.port(tablet).PID()).Wait(); err != nil {
		r.tb.Fatal(err)
	}
	if err := r.logs.Barrier(); err != nil {
		r.tb.Fatal(err)
	}
	cfg := Config{
		IdleHints: &r.idleHints, Pipeline: r.pipeline, MaxDelay: r.maxDelay, Limits: mvcc.DefaultLimits(),
		Logger: slog.New(slog.DiscardHandler),
	}
	t := newTablet(r.system, r.store, r.logs, r.readers, tablet, r, cfg)
	port, err := t.spawn(r.system)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.mu.Lock()
	r.ports[tablet] = port
	r.mu.Unlock()
	r.awaitLeader()
	return t
}

// quiet waits until nothing is left to collect.
func (r *rig) quiet(tablet uint64) {
	r.tb.Helper()
	r.until(tablet, "nothing left to collect", func(s *pb.StatusResponse) bool {
		return s.Garbage == 0
	})
}

// remove deletes the row.
func remove(row string) []*pb.CellWrite {
	return []*pb.CellWrite{{Cell: cellOf(row), Kind: pb.Kind_KIND_DELETE}}
}

// rowsOf counts the entries of the table's rows by group.
func (r *rig) rowsOf() map[mvcc.Group]int {
	r.tb.Helper()
	snap := r.store.Snap()
	defer snap.Close()
	out := map[mvcc.Group]int{}
	span := mvcc.Span{Table: 16}
	for cw, err := range snap.Cells(span, false) {
		if err != nil {
			r.tb.Fatal(err)
		}
		out[mvcc.GroupWrite]++
		if cw.Write.Long {
			out[mvcc.GroupData]++
		}
	}
	for _, err := range snap.History(span, nil) {
		if err != nil {
			r.tb.Fatal(err)
		}
		out[mvcc.GroupHistory]++
	}
	for _, g := range []mvcc.Group{mvcc.GroupRollback, mvcc.GroupNotify, mvcc.GroupRaw} {
		for _, err := range snap.Keys(g, span, nil) {
			if err != nil {
				r.tb.Fatal(err)
			}
			out[g]++
		}
	}
	return out
}

func statusOf(t *testing.T, what string, r *pb.TabletResponse, want pb.Status) {
	t.Helper()
	got := r.GetMutation().GetStatus()
	if g := r.GetGet(); g != nil {
		got = g.Results[0].Status
	}
	if r.GetError() != nil || got != want {
		t.Errorf("%s: %v, want %v", what, r, want)
	}
}

// TestBoundRefusesWhatIsBelow: reads, prewrites and one-phase commits below the bound are refused
// once it is proposed; the bound never decreases, and the safepoint never passes it.
func TestBoundRefusesWhatIsBelow(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	old := r.take(1)
	bound := r.take(1)
	refused := r.try(2, collectOf(&pb.CollectRequest{Safepoint: uint64(bound)})).GetError()
	if refused.GetCode() != pb.Error_CODE_INVALID {
		t.Errorf("a safepoint above the bound: %v", refused)
	}
	release := r.hold() // proposed, not applied
	raised := r.start(2, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	late := r.start(2, prewriteOf(old, "b", "1"))
	release()
	statusOf(t, "a prewrite below the proposed bound", await(t, late), pb.Status_STATUS_TOO_OLD)
	if c := await(t, raised).GetCollect(); c.GetBound() != uint64(bound) {
		t.Errorf("raised to %d: %v", bound, c)
	}
	statusOf(t, "a read below", r.do(2, getOf(old, "a")), pb.Status_STATUS_TOO_OLD)
	statusOf(t, "a read at the bound", r.do(2, getOf(bound, "a")), pb.Status_STATUS_OK)
	statusOf(t, "a one-phase commit below", r.do(2, onePhaseOf(old, put("c", "1"))),
		pb.Status_STATUS_TOO_OLD)
	statusOf(t, "a prewrite at the bound", r.do(2, prewriteOf(bound, "d", "1")),
		pb.Status_STATUS_OK)
	if c := r.do(2, collectOf(&pb.CollectRequest{Bound: uint64(
		old)})).GetCollect(); c.GetBound() != uint64(bound) {
		t.Errorf("a lower bound: %v", c)
	}
	for _, bad := range []*pb.CollectRequest{{}, {Bound: 1, Confirm: 1}, {Bound: ^uint64(0)},
		{Confirm: uint64(bound) + 1}} {
		if e := r.try(2, collectOf(bad)).GetError(); e.GetCode() != pb.Error_CODE_INVALID {
			t.Errorf("%v is answered %v, want INVALID", bad, e)
		}
	}
	// Below the safepoint no status is inferred.
	r.raise(2, bound)
	status := &pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: &pb.CheckTxnStatusRequest{
		Primary: cellOf("c"), StartTs: uint64(old), Now: uint64(r.take(1)),
	}}}
	statusOf(t, "the status of a transaction below the safepoint", r.do(2, status),
		pb.Status_STATUS_UNKNOWN)
	if n := r.rowsOf()[mvcc.GroupRollback]; n != 0 {
		t.Errorf("%d rollback records were written", n)
	}
}

// TestBoundSurvives: bound and safepoint are replicated state: they survive a restart and are
// inherited by both sides of a split.
func TestBoundSurvives(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	old, safepoint, bound := r.take(1), r.take(1), r.take(1)
	r.raise(2, safepoint)
	r.do(2, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	r.restart(2)
	r.do(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
		},
	})
	r.awaitLeader()
	for id := uint64(2); id <= 3; id++ {
		if s := r.status(id); s.Bound != uint64(bound) || s.Safepoint != uint64(safepoint) {
			t.Errorf("tablet %d: bound %d, safepoint %d; want %d, %d", id, s.Bound, s.Safepoint,
				bound, safepoint)
		}
	}
	statusOf(t, "a read below", r.do(2, getOf(old, "a")), pb.Status_STATUS_TOO_OLD)
	statusOf(t, "a prewrite below, right of the split", r.do(3, prewriteOf(old, "z", "1")),
		pb.Status_STATUS_TOO_OLD)
}

// TestConfirmWaitsForReservations: the bound is not confirmed while a one-phase commit that began
// below it waits for its commit timestamp: it is in memory only, and will still write. Catches
// BROKEN=confirm_reserved.
func TestConfirmWaitsForReservations(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := make(chan func(mvcc.Timestamp, error), 1)
	r.mu.Lock()
	r.timestamps = func(_ int, then func(mvcc.Timestamp, error)) { asked <- then }
	r.mu.Unlock()
	older, stale := r.take(1), r.take(1)
	commit := r.start(2, onePhaseOf(stale, put("a", "1")))
	then := <-asked
	bound := r.take(1)
	r.do(2, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	confirm := collectOf(&pb.CollectRequest{Confirm: uint64(bound)})
	if c := r.do(2, confirm).GetCollect(); c.Confirmed {
		t.Fatalf("CONFIRM-RESERVED: confirmed while a one-phase commit below the bound is in flight: %v", c)
	}
	then(r.take(1), nil)
	statusOf(t, "the one-phase commit", await(t, commit), pb.Status_STATUS_OK)
	r.visible(2)
	if c := r.do(2, confirm).GetCollect(); !c.Confirmed {
		t.Errorf("not confirmed after it: %v", c)
	}
	statusOf(t, "another below", r.do(2, onePhaseOf(older, put("b", "1"))),
		pb.Status_STATUS_TOO_OLD)
}

// TestConfirmWaitsForTheBound: while the bound is in flight nothing below it is confirmed, since
// the bound may be lost, and a later leader would then accept prewrites below it. Catches
// BROKEN=confirm_unbound.
func TestConfirmWaitsForTheBound(t *testing.T) {
	r := newPipelinedRig(t, store.Options{InMemory: true}, 8)
	r.take(1)
	bound := uint64(r.take(1))
	release := r.hold()
	raised := r.start(2, collectOf(&pb.CollectRequest{Bound: bound}))
	early := r.start(2, collectOf(&pb.CollectRequest{Confirm: bound}))
	if c := await(t, early).GetCollect(); c.GetConfirmed() {
		t.Errorf("CONFIRM-UNBOUND: confirmed while the bound is in flight: %v", c)
	}
	release()
	await(t, raised)
	if c := r.do(2, collectOf(&pb.CollectRequest{Confirm: bound})).GetCollect(); !c.Confirmed {
		t.Errorf("not confirmed once the bound is applied: %v", c)
	}
}

// TestConfirmWaitsForVisibility: prewrites below the bound are unsettled while their locks are
// durable but not yet in memory, whether the bound behind them is applied or not. Catches
// BROKEN=confirm_in_flight.
func TestConfirmWaitsForVisibility(t *testing.T) {
	r := newPipelinedRig(t, store.Options{InMemory: true}, 8)
	last := r.status(2).LastIndex
	old := r.take(1)
	bound := uint64(r.take(1))
	release := r.holdApplies()
	locked := r.start(2, prewriteOf(old, "a", "1"))
	raised := r.start(2, collectOf(&pb.CollectRequest{Bound: bound}))
	r.until(2, "both are in the log", func(s *pb.StatusResponse) bool { return s.LastIndex == last+2 })
	for range 20 { // the bound has been proposed by then
		if c := r.do(2, collectOf(&pb.CollectRequest{Confirm: bound})).GetCollect(); c.Confirmed {
			t.Errorf("CONFIRM-IN-FLIGHT: confirmed with a prewrite in flight: %v", c)
			break
		}
	}
	release()
	statusOf(t, "the prewrite", await(t, locked), pb.Status_STATUS_OK)
	await(t, raised)
}

// TestConfirmOfALostLeader: a confirmation that a read worker begins after the leadership was lost
// is refused: another leader may have accepted prewrites since. Catches BROKEN=confirm_any_term.
func TestConfirmOfALostLeader(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	bound := uint64(r.take(1))
	r.do(2, collectOf(&pb.CollectRequest{Bound: bound}))
	gate := make(chan struct{})
	_, lane := r.readers.Lanes()
	lane.Submit(func() { <-gate })
	confirm := r.start(2, collectOf(&pb.CollectRequest{Confirm: bound}))
	r.until(2, "it waits for a worker", func(*pb.StatusResponse) bool {
		_, n := r.readers.Waiting()
		return n > 0
	})
	term := inside.reads.Term()
	inside.reads.SetTerm(0) // as the end of a leadership sets it
	close(gate)
	got := <-confirm
	inside.reads.SetTerm(term)
	if got.Err != nil || got.Value.GetError().GetCode() != pb.Error_CODE_NOT_LEADER {
		t.Errorf("CONFIRM-ANY-TERM: a leader that is none answers %v, %v", got.Value, got.Err)
	}
}

// TestBoundInFlightStays: when a proposal behind a raised bound is lost, later evaluations still
// respect the bound. Catches BROKEN=bound_reverted.
func TestBoundInFlightStays(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	old, bound := r.take(1), r.take(1)
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) { // in the tablet's turn
		raised := inside.newProposal()
		inside.memory.Raise(nil, bound, 0)
		raised.command.Bound = uint64(bound)
		inside.propose(raised)
		inside.revertToInFlight()
		if got := inside.memory.Bound; got != bound {
			t.Errorf("BOUND-REVERTED: evaluation uses the bound %d, and %d is in flight", got, bound)
		}
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
	statusOf(t, "a prewrite below", r.do(2, prewriteOf(old, "b", "1")), pb.Status_STATUS_TOO_OLD)
}

// TestConfirmNamesWhatIsInTheWay: a refused confirmation names the locks and intents below the
// bound, in memory and on disk. It is also refused while a prewrite below the bound is in flight.
func TestConfirmNamesWhatIsInTheWay(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	catalogue := &pb.Catalogue{
		Version: 1, Observers: []*pb.ObserverInfo{
			{Name: "o", Table: 16, Column: []byte("c"), Weak: true},
		},
	}
	r.do(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_SetCatalogue{
			SetCatalogue: &pb.SetCatalogueRequest{Catalogue: catalogue},
		},
	})
	start := r.take(1)
	primary := &pb.Cell{Table: 16, Row: []byte("p"), Column: []byte("data")}
	prewrite := &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
		StartTs: uint64(start), Primary: primary, Expiry: uint64(start), Worker: &pb.Worker{},
		Intents: []*pb.Cell{cellOf("i")},
		Writes:  []*pb.CellWrite{{Cell: primary, Kind: pb.Kind_KIND_PUT, Value: []byte("v")}},
	}}}
	bound := start + 1
	r.take(5)
	release := r.hold()
	locked := r.start(2, prewrite)
	r.start(2, collectOf(&pb.CollectRequest{Bound: uint64(bound)}))
	confirm := collectOf(&pb.CollectRequest{Confirm: uint64(bound)})
	early := r.start(2, confirm)
	release()
	statusOf(t, "the prewrite", await(t, locked), pb.Status_STATUS_OK)
	if c := await(t, early).GetCollect(); c.GetConfirmed() {
		t.Errorf("confirmed with a prewrite in flight: %v", c)
	}
	r.visible(2)
	for range 2 {
		c := r.do(2, confirm).GetCollect()
		if c.Confirmed || len(c.Unsettled) != 2 || c.Unsettled[0].Intent || !c.Unsettled[1].Intent {
			t.Errorf("lock and intent: %v", c)
		}
		r.restart(2)
	}
	status := &pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: &pb.CheckTxnStatusRequest{
		Primary: primary, StartTs: uint64(start), Now: uint64(r.take(1)),
	}}}
	statusOf(t, "the status after the expiry", r.do(2, status), pb.Status_STATUS_ROLLED_BACK)
	r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: &pb.ResolveLockRequest{
		StartTs: uint64(start), Intents: []*pb.Cell{cellOf("i")},
	}}})
	r.visible(2)
	if c := r.do(2, confirm).GetCollect(); !c.Confirmed {
		t.Errorf("not confirmed after both are resolved: %v", c)
	}
}

// TestCollectsWhatTheSafepointHasPassed: versions that the safepoint has passed are collected,
// found in remembered cells and, after a restart, by a survey; deleted rows leave no entries, and a
// tablet without garbage reports so.
func TestCollectsWhatTheSafepointHasPassed(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.raise(2, r.take(1))
	r.quiet(2)
	long := string(make([]byte, 5000))
	var keep mvcc.Timestamp
	write := func() {
		for i := range 300 {
			row := fmt.Sprintf("r%03d", i%30)
			if i == 200 {
				keep = r.take(1)
			}
			r.do(2, onePhaseOf(r.take(1), put(row, long+fmt.Sprint(i))))
		}
		for i := range 10 {
			r.do(2, onePhaseOf(r.take(1), remove(fmt.Sprintf("r%03d", i))))
			r.do(2, &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: &pb.RollbackRequest{
				StartTs: uint64(r.take(1)), Cells: []*pb.Cell{cellOf("x")},
			}}})
		}
	}
	for _, restarted := range []bool{false, true} {
		write()
		if restarted {
			r.restart(2)
		}
		if r.status(2).Garbage == 0 {
			t.Error("nothing waits after overwrites")
		}
		r.raise(2, keep)
		r.until(2, "half of it", func(s *pb.StatusResponse) bool { return s.Collected > 0 })
		got := r.do(2, getOf(keep, "r015")).GetGet().Results[0]
		if string(got.Value) != long+"195" {
			t.Errorf("a read at the safepoint finds %d bytes", len(got.Value))
		}
		r.raise(2, r.take(1))
		r.quiet(2)
		groups := r.rowsOf()
		if groups[mvcc.GroupWrite] != 20 || groups[mvcc.GroupData] != 20 || len(groups) != 2 {
			t.Errorf("restarted %t: left are %v", restarted, groups)
		}
		got = r.do(2, getOf(r.take(1), "r015")).GetGet().Results[0]
		if string(got.Value) != long+"285" {
			t.Errorf("a read finds %d bytes", len(got.Value))
		}
	}
	if keys := r.store.RawKeys(); keys['c'] != 0 {
		t.Errorf("keys by their first byte are %v, want no chunks ('c')", keys)
	}
}

// TestCollectsDroppedTable: no entry of a table dropped below the safepoint stays in any group.
func TestCollectsDroppedTable(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	observed := []*pb.ObserverInfo{{Name: "o", Table: 16, Column: []byte("c")}}
	set := func(c *pb.Catalogue) {
		r.do(2, &pb.TabletRequest{
			Op: &pb.TabletRequest_SetCatalogue{SetCatalogue: &pb.SetCatalogueRequest{Catalogue: c}},
		})
	}
	set(&pb.Catalogue{Version: 1, Observers: observed})
	for i := range 200 {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprintf("r%02d", i%100), "v")))
	}
	start := r.take(1)
	r.do(2, prewriteOf(start, "late", "v"))
	set(&pb.Catalogue{Version: 2, DroppedTables: []uint32{16}})
	dropped := r.take(1)
	set(&pb.Catalogue{
		Version: 3, DroppedTables: []uint32{16}, DroppedTs: []uint64{uint64(dropped)},
	})
	if e := r.try(2, getOf(r.take(1), "r00")).GetError(); e.GetCode() != pb.Error_CODE_NO_TABLE {
		t.Errorf("a read of a dropped table: %v", e)
	}
	commit := r.take(1)
	statusOf(t, "a late commit", r.do(2, commitOf(start, commit, "late")), pb.Status_STATUS_OK)
	r.raise(2, dropped)
	r.until(2, "all but the late record", func(*pb.StatusResponse) bool {
		return r.rowsOf()[mvcc.GroupWrite] == 1
	})
	statusOf(t, "its commit again", r.do(2, commitOf(start, commit, "late")), pb.Status_STATUS_OK)
	r.raise(2, r.take(1))
	r.quiet(2)
	if groups := r.rowsOf(); len(groups) != 0 {
		t.Errorf("left are %v, want nothing", groups)
	}
	statusOf(t, "its commit once more", r.do(2, commitOf(start, commit, "late")),
		pb.Status_STATUS_UNKNOWN)
}

// TestLostStepIsMadeUpFor: a collection step that a split drops, and a bound lost with it, leave no
// trace in the evaluation's view or in the remembered garbage.
func TestLostStepIsMadeUpFor(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	r.raise(2, r.take(1))
	r.quiet(2) // from here on all garbage is remembered
	for i := range 40 {
		r.do(2, onePhaseOf(r.take(1), put(fmt.Sprintf("r%d", i%4), "v")))
	}
	unlost := r.status(2)
	safepoint := r.take(1)
	var before *proposal
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) { // in the tablet's turn
		if before == nil {
			// A split, and behind it, still under the old epoch, the step that it will drop.
			left, right := splitDescriptor(inside.descriptor,
				&pb.SplitRequest{Table: 16, Row: []byte("s"), NewTabletId: 3})
			before = inside.newProposal()
			before.command.Split = &wire.Split{Left: left, Right: right}
			inside.propose(before)
			lost := inside.newProposal()
			inside.memory.Raise(nil, safepoint, safepoint)
			lost.command.Bound, lost.command.Safepoint = uint64(safepoint), uint64(safepoint)
			inside.propose(lost)
			inside.history.Begin(safepoint, 0)
			p, work := inside.history.Due()
			if work != history.Delete {
				t.Error("nothing is remembered")
			}
			inside.makeStep(p)
			if _, work := inside.history.Due(); work != history.None {
				t.Error("the step has deleted nothing")
			}
		}
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	resp := r.try(2, onePhaseOf(r.take(1), put("r0", "w")))
	if resp.GetError() == nil && resp.GetMutation().Status != pb.Status_STATUS_OK {
		t.Errorf("the commit beside it: %v", resp)
	}
	r.awaitLeader()
	r.until(2, "the dropped entries are through", func(s *pb.StatusResponse) bool {
		return s.AppliedIndex == s.LastIndex
	})
	if s := r.status(2); s.Bound != unlost.Bound || s.Safepoint != unlost.Safepoint || s.Collected != unlost.Collected {
		t.Errorf("after the loss: %v", s)
	}
	statusOf(t, "a read below the lost bound", r.do(2, getOf(safepoint-1, "r1")),
		pb.Status_STATUS_OK)
	if n := r.rowsOf()[mvcc.GroupHistory]; n < 36 {
		t.Errorf("%d older records are left of 36", n)
	}
	r.raise(2, r.take(1))
	r.quiet(2)
	if groups := r.rowsOf(); groups[mvcc.GroupHistory] != 0 || groups[mvcc.GroupWrite] != 4 {
		t.Errorf("left are %v, want 4 in W and none in H", groups)
	}
}

// TestAppliedSetsNothingBack: applying an entry while a later one is in flight does not revert the
// evaluation's view to before the later one. Catches BROKEN=catalogue_set_back and bound_set_back.
func TestAppliedSetsNothingBack(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) { // in the tablet's turn
		inside.memory.Raise(memory.NewCatalogue(&pb.Catalogue{Version: 7}), 9, 8)
		for _, earlier := range []*wire.Command{
			{Catalogue: &pb.Catalogue{Version: 6}}, {Bound: 5}, {Safepoint: 4},
		} {
			earlier.Epoch = inside.descriptor.Epoch
			data, err := proto.Marshal(earlier)
			if err == nil {
				err = inside.applyCommand(&store.Batch{}, &applied{}, &raftpb.Entry{Data: data})
			}
			if err != nil {
				t.Error(err)
			}
		}
		m := inside.memory
		if m.Catalogue.Version() != 7 || m.Bound != 9 || m.Safepoint != 8 {
			t.Errorf("SET-BACK: evaluation uses catalogue %d, bound %d, safepoint %d; want 7, 9, 8",
				m.Catalogue.Version(), m.Bound, m.Safepoint)
		}
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	r.do(2, onePhaseOf(r.take(1), put("a", "1")))
}

// TestNothingOutlivesTheLeadership: state in flight or in memory at the end of a leadership is gone
// when the replica leads again. Catches BROKEN=memory_kept.
func TestNothingOutlivesTheLeadership(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	inside := r.restart(2)
	r.do(2, prewriteOf(r.take(1), "a", "1"))
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) { // in the tablet's turn
		inside.memory.Raise(nil, 9, 0)
		inside.stepDown(errLost)
		if m := inside.memory; m.Locks() != 0 || m.Bound != inside.appliedBound {
			t.Errorf("MEMORY-KEPT: %d locks, bound %d", m.Locks(), m.Bound)
		}
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	if got := r.try(2, onePhaseOf(r.take(1), put("b", "1"))); got.GetError() == nil {
		t.Errorf("a replica that leads no more answers %v", got)
	}
}
