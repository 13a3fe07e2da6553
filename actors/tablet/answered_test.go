package tablet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet/reads"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/store"
)

// answered waits for any answer.
func answered(t *testing.T, what string, answer <-chan result) result {
	t.Helper()
	select {
	case a := <-answer:
		return a
	case <-time.After(30 * time.Second):
		t.Errorf("%s was never answered", what)
		return result{}
	}
}

// envelope creates a call addressed to no tablet, and the channel that receives its answer.
func (r *rig) envelope(req *pb.TabletRequest) (*Call, <-chan result) {
	calls, answer := make(chan *Call, 1), make(chan result, 1)
	pid := r.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		if call, ok := c.Message().(*Call); ok {
			calls <- call
		}
	}))
	defer r.system.Root.Stop(pid)
	port := actorkit.NewPort[*pb.TabletRequest, *pb.TabletResponse](r.system, pid, 0)
	if err := port.Tell(req, time.Time{}, true, func(a result) { answer <- a }); err != nil {
		r.tb.Fatal(err)
	}
	return <-calls, answer
}

// TestStopAnswersTheMailbox: the calls in a tablet's mailbox are answered when it stops.
func TestStopAnswersTheMailbox(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	busy, gate := make(chan struct{}), make(chan struct{})
	r.mu.Lock()
	r.timestamps = func(int, func(mvcc.Timestamp, error)) { // keeps the actor busy
		close(busy)
		<-gate
	}
	r.mu.Unlock()
	commit := r.start(2, onePhaseOf(r.take(1), put("a", "1")))
	<-busy
	read, write := r.start(2, getOf(r.take(1), "a")), r.start(2, prewriteOf(r.take(1), "b", "1"))
	stopped := r.system.Root.StopFuture(r.port(2).PID())
	close(gate)
	if err := stopped.Wait(); err != nil {
		t.Fatal(err)
	}
	answered(t, "the commit", commit)
	for what, answer := range map[string]<-chan result{"a read": read, "a write": write} {
		if a := answered(t, what, answer); a.Err != nil && !errors.Is(a.Err, actorkit.ErrStopped) {
			t.Errorf("%s ended with %v, want an answer or ErrStopped", what, a.Err)
		}
	}
}

// TestStopAnswersBlockedReads: a read that returns from a worker to a stopped tablet is answered.
func TestStopAnswersBlockedReads(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	call, answer := r.envelope(getOf(r.take(1), "a"))
	pid := r.port(2).PID()
	if err := r.system.Root.StopFuture(pid).Wait(); err != nil {
		t.Fatal(err)
	}
	r.system.Root.Send(pid, &reads.Blocked{Reads: []reads.BlockedRead{{Call: call}}})
	answered(t, "the read", answer)
}

// TestStoreFaultAnswersTheBatch: an operation that cannot read the store stops the tablet; all
// other operations of its batch are still answered, and none is acknowledged.
func TestStoreFaultAnswersTheBatch(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.failed = make(chan error, 1)
	damage := &store.Batch{}
	damage.Put(store.AppendKey(nil, mvcc.GroupWrite, mvcc.Cell{Table: 16, Row: "bad", Column: "c"},
		0), []byte{0xff})
	if err := r.store.StateWriter().Commit([]*store.Batch{damage}); err != nil {
		t.Fatal(err)
	}
	release := r.hold()
	for n := range uint64(2) { // what comes then is one batch
		r.start(2, prewriteOf(r.take(1), fmt.Sprint(n), "1"))
		r.until(2, "it is proposed", func(s *pb.StatusResponse) bool { return s.Proposals > n })
	}
	answers := map[string]<-chan result{}
	for _, row := range []string{"before", "bad", "after"} {
		answers[row] = r.start(2, prewriteOf(r.take(1), row, "1"))
	}
	r.until(2, "all have come", func(*pb.StatusResponse) bool {
		return r.port(2).Queued() >= 2+len(answers)
	})
	release()
	for row, answer := range answers {
		if a := answered(t, row, answer); a.Err == nil && a.Value.GetError() == nil {
			t.Errorf("%s: acknowledged: %v", row, a.Value)
		}
	}
	if err := <-r.failed; err == nil {
		t.Error("the replica ended without saying why")
	}
}

// TestPanicAnswersTheTurn: a broken invariant stops the replica; every operation of the turn is
// answered.
func TestPanicAnswersTheTurn(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	r.failed = make(chan error, 1)
	broken, first := r.envelope(nil) // a missing request panics
	call, second := r.envelope(getOf(r.take(1), "a"))
	r.system.Root.Send(r.port(2).PID(), &reads.Blocked{
		Reads: []reads.BlockedRead{{Call: broken, Met: &mvcc.Lock{}}, {Call: call, Met: &mvcc.Lock{}}},
	})
	if err := <-r.failed; !errors.Is(err, ErrPanic) {
		t.Fatal(err)
	}
	answered(t, "the one that panicked", first)
	answered(t, "the one after it", second)
}

// TestPanickingRead: a panic during a read fails only that read.
func TestPanickingRead(t *testing.T) {
	r := newRig(t, store.Options{InMemory: true})
	if e := r.try(2, &pb.TabletRequest{Op: &pb.TabletRequest_Get{}}).GetError(); e.GetCode() != pb.Error_CODE_INTERNAL {
		t.Errorf("a Get without a body is answered %v, want INTERNAL", e)
	}
	r.do(2, getOf(r.take(1), "a"))
}

// TestWaitIsBounded: a call that waits a second time does not get a new timeout.
func TestWaitIsBounded(t *testing.T) {
	call := &Call{}
	boundWait(call, time.Minute)
	until := call.Deadline
	if boundWait(call, time.Minute); until.IsZero() || call.Deadline != until {
		t.Errorf("a wait until %v became one until %v", until, call.Deadline)
	}
}
