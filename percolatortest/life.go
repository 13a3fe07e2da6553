package percolatortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

var (
	errCrashed = errors.New("percolatortest: the node has crashed")
	errNoReply = errors.New("percolatortest: injected: the reply was lost")
	errOracle  = errors.New("percolatortest: injected: the oracle is unavailable")
)

// life is the transport between transactions and tablets from one start of the node to its
// next end. It injects the faults.
type life struct {
	txn.Transport
	faults *faults

	ctx    context.Context // ends with the life, or with its crash
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	over bool
	// delayed counts the delayed requests to the oracle. It is added to only while over is
	// false.
	delayed sync.WaitGroup
	unknown map[uint64]bool // start timestamps of commits whose outcome stays unknown
}

func newLife(f *faults) *life {
	l := &life{faults: f, unknown: map[uint64]bool{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// crash fails all further operations on tablets.
func (l *life) crash() { l.cancel(errCrashed) }

func (l *life) crashed() bool { return errors.Is(context.Cause(l.ctx), errCrashed) }

// end ends the life and waits for delayed requests.
func (l *life) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.cancel(nil)
	l.delayed.Wait()
}

// bound returns a context that also ends with the life.
func (l *life) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// refusal returns a permanent error, which clients do not retry.
func refusal(why string) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: why}}
}

// Send implements txn.Transport.
func (l *life) Send(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if l.crashed() {
		return refusal(errCrashed.Error()), nil
	}
	switch op := req.Op.(type) {
	case *pb.TabletRequest_ClearNotify: // sent by a weak observer's run
		start := op.ClearNotify.UpTo
		if o := l.faults.runs.observer(start); o != "" &&
			l.faults.take(o, start, ClearLost) != nil {
			return refusal("percolatortest: injected: the run died before clearing its notification"), nil
		}
	case *pb.TabletRequest_Rollback:
		if !op.Rollback.Ask && l.isUnknown(op.Rollback.StartTs) {
			return refusal("percolatortest: injected: the outcome stays unknown"), nil
		}
	case *pb.TabletRequest_Get, *pb.TabletRequest_Scan:
		return l.sendOrFail(ctx, d, req)
	case *pb.TabletRequest_Prewrite:
		if r := l.conflicting(op.Prewrite.StartTs, op.Prewrite.Writes); r != nil {
			return r, nil
		}
		if len(op.Prewrite.Secondaries) == 0 { // else the transaction is committed once all cells are locked
			return l.sendOrFail(ctx, d, req)
		}
		if l.isUnknown(op.Prewrite.StartTs) { // a repetition
			return refusal("percolatortest: injected: the outcome stays unknown"), nil
		}
		return l.decide(ctx, d, req, op.Prewrite.StartTs)
	case *pb.TabletRequest_OnePhase:
		if r := l.conflicting(op.OnePhase.StartTs, op.OnePhase.Writes); r != nil {
			return r, nil
		}
		return l.acknowledge(ctx, d, req, op.OnePhase.StartTs, op.OnePhase.Clear)
	case *pb.TabletRequest_Commit:
		return l.acknowledge(ctx, d, req, op.Commit.StartTs, op.Commit.Clear)
	}
	return l.Transport.Send(ctx, d, req)
}

// acknowledge sends a message as decide does. clears means that the message clears notifications:
// if ClearLost occurs, acknowledge sends it without that.
func (l *life) acknowledge(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest,
	start uint64, clears bool) (*pb.TabletResponse, error) {
	var lost *Fault
	if clears {
		lost = l.faults.take(l.faults.runs.observer(start), start, ClearLost)
	}
	if lost == nil {
		return l.decide(ctx, d, req, start)
	}
	req = proto.CloneOf(req)
	switch op := req.Op.(type) {
	case *pb.TabletRequest_OnePhase:
		op.OnePhase.Clear = false
	case *pb.TabletRequest_Commit:
		op.Commit.Clear = false
	}
	r, err := l.decide(ctx, d, req, start)
	if err == nil && (r.GetError() != nil || r.GetMutation().GetStatus() != pb.Status_STATUS_OK) {
		l.faults.untake(lost, start)
	}
	return r, err
}

// conflicting returns a conflict if the test has injected CommitConflicts for the transaction, else
// nil.
func (l *life) conflicting(start uint64, writes []*pb.CellWrite) *pb.TabletResponse {
	if len(writes) == 0 || l.faults.take(l.faults.runs.observer(start), start,
		CommitConflicts) == nil {
		return nil
	}
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{
		Status: pb.Status_STATUS_CONFLICT, ConflictAt: writes[0].Cell, CommitTs: start + 1,
	}}}
}

// decide sends a one-phase commit, the prewrite of the primary of an asynchronous commit, or a
// commit. A fault affects only the first such message of a transaction, which decides it: the
// commit of the primary precedes those of the secondaries.
func (l *life) decide(ctx context.Context, d *pb.TabletDescriptor, req *pb.TabletRequest,
	start uint64) (*pb.TabletResponse, error) {
	f := l.faults.take(l.faults.runs.observer(start), start, CommitReplyLost, CommitUnknown,
		CommitLost)
	if f == nil {
		return l.sendOrFail(ctx, d, req)
	}
	if f.Kind != CommitReplyLost {
		l.mu.Lock()
		l.unknown[start] = true
		l.mu.Unlock()
	}
	if f.Kind != CommitLost {
		// A replica that no longer serves the tablet has done nothing: the client retries
		// elsewhere, and the fault occurs there.
		if r, err := l.Transport.Send(ctx, d, req); err != nil || r.GetError() != nil {
			l.mu.Lock()
			delete(l.unknown, start)
			l.mu.Unlock()
			l.faults.untake(f, start)
			return r, err
		}
	}
	return nil, errNoReply
}

func (l *life) isUnknown(start uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unknown[start]
}

// sendOrFail sends a request, subject to TabletUnavailable and TabletSlow.
func (l *life) sendOrFail(ctx context.Context, d *pb.TabletDescriptor,
	req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if f := l.faults.take("", 0, TabletUnavailable); f != nil {
		return &pb.TabletResponse{
			Error: &pb.Error{Code: pb.Error_CODE_UNAVAILABLE, Message: "percolatortest: injected"},
		}, nil
	}
	if f := l.faults.take("", 0, TabletSlow); f != nil {
		if err := l.wait(ctx, f.Delay); err != nil {
			return nil, fmt.Errorf("%w: wait for the injected delay: %w", txn.ErrNotSent, err)
		}
	}
	return l.Transport.Send(ctx, d, req)
}

// wait waits for d, or until ctx or the life ends.
func (l *life) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// Timestamps implements txn.Transport, subject to OracleUnavailable and OracleSlow.
func (l *life) Timestamps(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	if l.faults.take("", 0, OracleUnavailable) != nil {
		return 0, 0, errOracle
	}
	if f := l.faults.take("", 0, OracleSlow); f != nil {
		if err := l.wait(ctx, f.Delay); err != nil {
			return 0, 0, err
		}
	}
	return l.Transport.Timestamps(ctx, count)
}

// oracle handles the tablets' requests to the oracle; see nodeparts.Parts.
func (l *life) oracle(ask func(), fail func(error)) {
	if l.faults.take("", 0, OracleUnavailable) != nil {
		fail(errOracle)
		return
	}
	f := l.faults.take("", 0, OracleSlow)
	if f == nil || !l.addDelayed() {
		ask()
		return
	}
	go func() { // joined by end
		defer l.delayed.Done()
		_ = l.wait(l.ctx, f.Delay) // returns early at the end of the life
		ask()
	}()
}

// addDelayed counts a delayed request; it reports false after the end of the life.
func (l *life) addDelayed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.delayed.Add(1)
	return true
}
