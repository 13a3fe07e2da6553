package tablet

import (
	"fmt"
	"testing"
	"time"

	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// hold blocks the log actor: earlier writes are durable, later ones wait. The function it returns
// unblocks it.
func (r *rig) hold() (release func()) {
	return hold(r.logs, &writers.Write{Append: &writers.Append{}})
}

// holdApplies is hold for the state actor: entries become durable, and their effects invisible.
func (r *rig) holdApplies() (release func()) {
	return hold(r.logs, &writers.Write{Batch: &store.Batch{}})
}

func hold(logs *writers.Pair, w *writers.Write) (release func()) {
	held, release := holdNext(logs, w)
	<-held
	return release
}

// holdNext is hold for a blocked actor: after the release it blocks again right behind the writes
// sent so far.
func holdNext(logs *writers.Pair, w *writers.Write) (held chan struct{}, release func()) {
	held, gate := make(chan struct{}), make(chan struct{})
	w.Done = func(error) {
		close(held)
		<-gate
	}
	logs.Send(w)
	return held, func() { close(gate) }
}

type result = actorkit.Result[*pb.TabletResponse]

// start sends an operation and returns the channel that receives its answer.
func (r *rig) start(tablet uint64, req *pb.TabletRequest) <-chan result {
	r.tb.Helper()
	answer := make(chan result, 1)
	if err := r.port(tablet).Tell(req, time.Time{}, false, func(a result) {
		answer <- a
	}); err != nil {
		r.tb.Fatal(err)
	}
	return answer
}

// until waits for a condition on the tablet's status.
func (r *rig) until(tablet uint64, what string, ok func(*pb.StatusResponse) bool) {
	r.tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if ok(r.do(tablet, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}).GetStatus()) {
			return
		}
	}
	r.tb.Fatalf("not within 30 s: %s", what)
}

func await(t *testing.T, answer <-chan result) *pb.TabletResponse {
	t.Helper()
	select {
	case a := <-answer:
		if a.Err != nil || a.Value.GetError() != nil {
			t.Fatalf("answered %v, %v", a.Value, a.Err)
		}
		return a.Value
	case <-time.After(30 * time.Second):
		t.Fatal("no answer within 30 s")
		return nil
	}
}

func prewriteOf(start mvcc.Timestamp, row, value string) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
		StartTs: uint64(start), Primary: cellOf(row), Expiry: uint64(mvcc.MaxTimestamp - 1),
		Worker: &pb.Worker{}, Writes: put(row, value),
	}}}
}

func commitOf(start, commit mvcc.Timestamp, row string) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{
		StartTs: uint64(start), CommitTs: uint64(commit), Cells: []*pb.Cell{cellOf(row)},
	}}}
}

// TestAnswersWaitUntilCommitted: neither a commit nor a status evaluated on top of its proposal is
// answered while the log holds the commit back. Catches BROKEN=early_answer.
func TestAnswersWaitUntilCommitted(t *testing.T) {
	// the status is evaluated while the commit is in flight
	r := newPipelinedRig(t, store.Options{InMemory: true}, 8)
	start, commit := r.take(1), r.take(1)
	r.do(2, prewriteOf(start, "a", "1"))
	release := r.hold()
	committed := r.start(2, commitOf(start, commit, "a"))
	checked := r.start(2, statusOfTxn(start, r.take(1), "a"))
	r.until(2, "both are evaluated", func(s *pb.StatusResponse) bool { return s.Mutations >= 3 })
	select {
	case a := <-committed:
		t.Errorf("ANSWER-BEFORE-COMMIT: the commit was answered before it was durable: %v", a.Value)
	case a := <-checked:
		t.Errorf("ANSWER-BEFORE-COMMIT: a status was answered from a proposal that could still be lost: %v", a.Value)
	default:
	}
	release()
	if t.Failed() {
		return
	}
	if got := await(t, committed).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Errorf("the commit is answered %v, want OK", got)
	}
	if got := await(t, checked).GetMutation(); got.Status != pb.Status_STATUS_COMMITTED ||
		got.CommitTs != uint64(commit) {
		t.Errorf("the status is %v, want COMMITTED at the commit's timestamp", got)
	}
}

// statusOfTxn asks for the status of the transaction with the primary.
func statusOfTxn(start, now mvcc.Timestamp, primary string) *pb.TabletRequest {
	return &pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: &pb.CheckTxnStatusRequest{
		Primary: cellOf(primary), StartTs: uint64(start), Now: uint64(now),
	}}}
}

// visible waits until everything in the tablet's log can be read, and returns the status by then.
func (r *rig) visible(tablet uint64) (s *pb.StatusResponse) {
	r.tb.Helper()
	r.until(tablet, "everything is visible", func(now *pb.StatusResponse) bool {
		s = now
		return s.AppliedIndex == s.LastIndex
	})
	return s
}

// TestReadSeesLockOrWrite: a read at R that arrives while a commit below R is decided but not
// visible sees the lock or the write, never neither. Catches BROKEN=early_txn.
func TestReadSeesLockOrWrite(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	start, commit := r.take(1), r.take(1)
	r.do(2, prewriteOf(start, "a", "new"))
	releaseApply := r.holdApplies()
	committed := r.start(2, commitOf(start, commit, "a"))
	r.until(2, "the entry is in the log", func(s *pb.StatusResponse) bool {
		return s.LastIndex > s.AppliedIndex
	})
	read := r.start(2, getOf(r.take(1), "a"))
	r.until(2, "the read is under way", func(s *pb.StatusResponse) bool { return s.Reads >= 1 })
	releaseApply()
	got := await(t, read).GetGet().Results[0]
	if got.Status != pb.Status_STATUS_LOCKED && string(got.Value) != "new" {
		t.Errorf("LOST-READ: a read above the commit timestamp saw neither the lock nor the write: %v", got)
	}
	await(t, committed)
}

// TestAppliedIndexMatchesEffects: in every state of the store, the applied index is that of the
// effects. Catches BROKEN=split_applied.
func TestAppliedIndexMatchesEffects(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	cell := mvcc.Cell{Table: 16, Row: "n", Column: "c"}
	raw := func(i int) *pb.TabletRequest {
		return &pb.TabletRequest{
			Op: &pb.TabletRequest_RawWrite{
				RawWrite: &pb.RawWriteRequest{Writes: put("n", fmt.Sprint(i))},
			},
		}
	}
	look := func() (index uint64, n int) {
		snap := r.store.Snap()
		defer snap.Close()
		a, ok, err := snap.Applied(2)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		value, _, err := snap.Raw(cell)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Sscan(string(value), &n)
		return a.Index, n
	}
	r.do(2, raw(0))
	r.visible(2)
	base, _ := look()
	for i := 1; i <= 200; i++ {
		answer := r.start(2, raw(i))
		for n := 0; n < i; {
			var index uint64
			if index, n = look(); index != base+uint64(n) {
				t.Fatalf("APPLIED-INDEX: the store reports index %d is applied, and holds the effects of %d", index, base+uint64(n))
			}
		}
		await(t, answer)
	}
}

// TestReaderWaitsForReservation: a read that encounters a one-phase commit under way is answered
// after it, and sees it if its own timestamp is higher; the client never sees the reservation.
func TestReaderWaitsForReservation(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	asked := make(chan func(), 1)
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) {
		asked <- func() { then(r.take(n), nil) }
	}
	r.mu.Unlock()
	commit := r.start(2, onePhaseOf(r.take(1), put("a", "1")))
	grant := <-asked
	read := r.start(2, getOf(r.take(1), "a")) // below the commit timestamp, which is not known yet
	rollback := r.start(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Rollback{
			Rollback: &pb.RollbackRequest{StartTs: 1, Cells: []*pb.Cell{cellOf("a")}},
		},
	})
	r.until(2, "all are under way", func(s *pb.StatusResponse) bool {
		return s.Reads >= 1 && s.Mutations >= 2
	})
	grant()
	if got := await(t, commit).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Fatalf("one-phase commit: %v", got)
	}
	if got := await(t, read).GetGet().Results[0]; got.Status != pb.Status_STATUS_OK || got.Found {
		t.Errorf("a read below the commit timestamp: %v", got)
	}
	if got := await(t, rollback).GetMutation(); got.Status != pb.Status_STATUS_COMMITTED {
		t.Errorf("a rollback of it: %v", got)
	}
}

// TestRefusedGrantReleases: a one-phase commit whose commit timestamp is unsuitable has no effects.
// Its cells are released, and it does not delay a split.
func TestRefusedGrantReleases(t *testing.T) {
	t.Run("by a message", func(t *testing.T) {
		refusedGrantReleases(t, newRig(t, store.Options{InMemory: true}))
	})
	t.Run("at once", func(t *testing.T) {
		refusedGrantReleases(t, nearRig(t, store.Options{InMemory: true}))
	})
}

func refusedGrantReleases(t *testing.T, r *rig) {
	future := mvcc.MaxTimestamp - 1
	if got := r.do(2, onePhaseOf(future,
		put("a", "1"))).GetMutation(); got.Status != pb.Status_STATUS_COMMIT_TS_TOO_LOW {
		t.Fatalf("answered %v, want COMMIT_TS_TOO_LOW", got)
	}
	await(t, r.start(2, onePhaseOf(r.take(1), put("a", "2"))))
	await(t, r.start(2, getOf(r.take(1), "a")))
	await(t, r.start(2, &pb.TabletRequest{
		Op: &pb.TabletRequest_Split{
			Split: &pb.SplitRequest{Table: 16, Row: []byte("m"), NewTabletId: 3},
		},
	}))
	r.awaitLeader()
}

// TestOracleFailureReleases: without a commit timestamp a one-phase commit is surely not done, and
// its cells are released.
func TestOracleFailureReleases(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.mu.Lock()
	r.timestamps = func(_ int, then func(mvcc.Timestamp, error)) { then(0, errStopping) }
	r.mu.Unlock()
	if e := r.try(2, onePhaseOf(r.take(1),
		put("a", "1"))).GetError(); e.GetCode() != pb.Error_CODE_NOT_PROPOSED {
		t.Fatalf("answered %v, want NOT_PROPOSED", e)
	}
	r.mu.Lock()
	r.timestamps = nil
	r.mu.Unlock()
	if got := r.do(2, onePhaseOf(r.take(1),
		put("a", "2"))).GetMutation(); got.Status != pb.Status_STATUS_OK {
		t.Errorf("the cell is not free: %v", got)
	}
}

// TestLostGrantReleases: a missing answer of the oracle ends the one-phase commit, and a late one
// changes nothing, neither for this commit nor for the one that has reserved its cells since, which
// is the same commit resent. Catches BROKEN=grant_unchecked.
func TestLostGrantReleases(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.maxWait = 300 * time.Millisecond
	reopen(t, r, 2, 0)
	asked := make(chan func(), 1)
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) {
		at := r.take(n)
		asked <- func() { then(at, nil) }
	}
	r.mu.Unlock()
	start := r.take(1)
	first := r.start(2, onePhaseOf(start, put("a", "1")))
	late, early := <-asked, r.now.Load()
	select {
	case a := <-first:
		if a.Value.GetError().GetCode() != pb.Error_CODE_NOT_PROPOSED {
			t.Fatalf("without a commit timestamp: %v, %v", a.Value, a.Err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for ever")
	}
	r.mu.Lock()
	r.timestamps = func(n int, then func(mvcc.Timestamp, error)) {
		late() // while the cells are reserved again
		then(r.take(n), nil)
	}
	r.mu.Unlock()
	if got := r.do(2, onePhaseOf(start, put("a",
		"1"))).GetMutation(); got.Status != pb.Status_STATUS_OK || got.CommitTs <= early {
		t.Fatalf("LATE-GRANT: sent again: %v, not after %d", got, early)
	}
	got := r.do(2, getOf(r.take(1), "a")).GetGet().Results[0]
	if !got.Found || string(got.Value) != "1" || got.CommitTs <= early {
		t.Errorf("a read above it: %v", got)
	}
}

// TestNextBatchMeetsTheApply: operations that arrive while an entry is being applied are evaluated
// on its effects, proposed and answered at once; later ones wait.
func TestNextBatchMeetsTheApply(t *testing.T) {
	g := newGroup(t, 2, 2, testTick) // an only voter would not have waited for the log
	lead := g.leader(groupTablet)
	m := g.nodes[lead]
	r := &rig{tb: t, logs: m.logs, ports: map[uint64]*Port{groupTablet: m.port(groupTablet)}}
	proposed := func(n uint64) func(*pb.StatusResponse) bool {
		before := g.status(lead, groupTablet).Proposals
		return func(s *pb.StatusResponse) bool { return s.Proposals >= before+n }
	}
	start, commit := g.take(1), g.take(1)
	g.do(groupTablet, prewriteOf(start, "a", "1"))
	first, second := proposed(1), proposed(2)
	release := r.hold()
	committed := r.start(groupTablet, commitOf(start, commit, "a"))
	r.until(groupTablet, "the commit is proposed", first)
	checked := r.start(groupTablet, statusOfTxn(start, g.take(1), "a"))
	other := r.start(groupTablet, prewriteOf(g.take(1), "b", "2"))
	releaseApply := r.holdApplies()
	release()
	r.until(groupTablet, "the next entry is proposed while the first is being applied", second)
	third := r.start(groupTablet, prewriteOf(g.take(1), "c", "3"))
	if got := await(t, checked).GetMutation(); got.Status != pb.Status_STATUS_COMMITTED ||
		got.CommitTs != uint64(commit) {
		t.Errorf("the status is %v, want COMMITTED at the commit's timestamp", got)
	}
	for i, answer := range []<-chan result{committed, other, third} {
		if i == 2 {
			releaseApply()
		}
		if got := await(t, answer).GetMutation(); got.Status != pb.Status_STATUS_OK {
			t.Errorf("answered %v, want OK", got)
		}
	}
}
