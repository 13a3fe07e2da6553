package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// Execution of one operation on the goroutine of its stream's worker, or of Local.Send. A panic in
// the Transport becomes an answer, and every error becomes one that states whether the operation
// may have been applied.

const (
	// largeWithin is the maximum wait for memory for a large answer. The operation's deadline,
	// which is restarted at the wait, also bounds it.
	largeWithin = 30 * time.Second
	// largeRetry is the retry delay of a read whose wait for memory timed out, in
	// milliseconds.
	largeRetry = 50
)

// performer executes the operations of one caller, within the memory of its connection.
type performer struct {
	s      *service
	who    Caller
	memory *memory
	cells  atomic.Int64 // estimated size of answers to reads of cells, in bytes
}

// task is an operation and its reserved memory.
type task struct {
	request    *pb.TabletRequest
	id         uint64        // of the operation on its stream
	held, room int64         // bytes to reserve; room is the part for the answer
	span       *tracing.Span // nil: not traced
}

// task returns the task of a request, whose memory is not reserved yet.
func (o *performer) task(req *pb.TabletRequest) task {
	room := o.firstRoom(req)
	return task{
		request: req, held: min(operationMemory+int64(proto.Size(req))+room, o.memory.most), room: room,
		span: o.s.cfg.Tracer.Operation(req, "percolator.request"),
	}
}

// execute executes an operation and returns its answer, and the answer's size in bytes. If a read's answer
// exceeds the reserved memory, the tablet refuses it, and execute repeats it with the memory it needs.
// counts are those of the caller's connection.
func (o *performer) execute(ctx context.Context, t *task, counts *use) (*pb.TabletResponse, int) {
	began, room := time.Now(), t.room
	t.span.Event("worker")
	defer t.span.End()
	policy, identity := o.s.policy(), o.who.boundedAs()
	if e := o.s.cfg.Clients.rates.take(policy, identity, t.request, began); e != nil {
		counts.refused.Add(1)
		return fit(&pb.TabletResponse{Error: e})
	}
	resp, bytes := o.attempt(ctx, t, room)
	for {
		needs := int64(resp.GetError().GetNeedsBytes())
		// The answer fits, failed for another reason, or does not state its size.
		if needs <= room {
			break
		}
		if refusal := o.enlarge(ctx, t, room, needs); refusal != nil {
			resp, bytes = refusal, proto.Size(refusal)
			break
		}
		room = needs
		resp, bytes = o.attempt(ctx, t, room)
	}
	if resp.GetGet() != nil {
		o.learn(int64(bytes) + wire.AnswerOverhead)
	}
	o.s.counters.performed(t.request, began, resp)
	found := cellsIn(resp)
	o.s.cfg.Clients.rates.answered(policy, identity, t.request, found-1, began)
	counts.done(max(cellsOf(t.request), found), began)
	return resp, bytes
}

// leaderOf returns the address for clients of the other node that leads the tablet, or "" (see
// ServerConfig.LeaderOf).
func (s *service) leaderOf(tablet uint64) string {
	if s.cfg.LeaderOf == nil {
		return ""
	}
	return s.cfg.LeaderOf(tablet)
}

// policy returns the node's latest version of the cluster's policy, or nil if it has none.
func (s *service) policy() *pb.Policy {
	if s.cfg.Policy == nil {
		return nil
	}
	p, _ := s.cfg.Policy()
	return p
}

// attempt executes the operation once. The answer to a read has at most room bytes. attempt
// never panics and always returns an answer.
func (o *performer) attempt(ctx context.Context, t *task, room int64) (resp *pb.TabletResponse, bytes int) {
	var panicked error
	defer func() {
		if panicked != nil {
			resp, bytes = fit(wire.Failure(pb.Error_CODE_INTERNAL, "internal error"))
		}
	}()
	defer recovered(o.s.cfg.Logger, pb.Percolator_Operations_FullMethodName, &panicked)
	r := t.request // copied, not changed: the previous attempt's message may still be in flight
	return fit(o.s.do(t.span.In(ctx), o.who, &pb.TabletRequest{
		TabletId: r.TabletId, Epoch: r.Epoch, DeadlineMs: r.DeadlineMs,
		MaxAnswerBytes: uint32(room), Op: r.Op, Trace: r.Trace,
	}))
}

// enlarge waits until the task has reserved needs bytes for its answer instead of room. If it
// fails, it returns the error's answer.
func (o *performer) enlarge(ctx context.Context, t *task, room, needs int64) *pb.TabletResponse {
	if needs > largestAnswer {
		return wire.Failure(pb.Error_CODE_TOO_LARGE, "the answer is too large: ask for less")
	}
	// Release the answer's reservation first: otherwise many waiting reads could together hold
	// the memory that each of them waits for.
	room = min(room, t.held)
	o.memory.give(room)
	t.held -= room
	within := largeWithin
	if t.request.DeadlineMs > 0 {
		within = min(within,
			min(time.Duration(t.request.DeadlineMs), maxDeadline)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// A single operation may use the whole share of its connection, even if it needs more.
	more := min(needs, o.memory.most-t.held)
	if o.memory.take(ctx, more) != nil {
		refusal := wire.Failure(pb.Error_CODE_OVERLOADED,
			"there is no memory for an answer of %d bytes now: try again", needs)
		refusal.Error.RetryAfterMs = largeRetry
		return refusal
	}
	t.held += more
	return nil
}

// refuse returns an error if the caller may not perform the operation. It replaces a status check that
// the caller may perform only in part (weaken).
func (s *service) refuse(ctx context.Context, who Caller, req *pb.TabletRequest) *pb.Error {
	if e := who.refuseOperation(req); e != nil {
		return e
	}
	table, e := admit(req, who.works)
	if e != nil {
		return e
	}
	if e := s.grants.refuse(who, req); e != nil {
		return e
	}
	if e := s.future(ctx, req); e != nil {
		return e
	}
	if e := s.tables.check(ctx, table); e != nil {
		return e
	}
	// After tables.check, which looks up the id of OutcomesTable.
	return s.tables.refuseOutcomes(who, req)
}

// do checks and executes one operation.
func (s *service) do(ctx context.Context, who Caller,
	req *pb.TabletRequest) *pb.TabletResponse {
	asked := req.GetCheckTxnStatus()
	if req.DeadlineMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx,
			min(time.Duration(req.DeadlineMs), maxDeadline)*time.Millisecond)
		defer cancel()
	}
	if e := s.refuse(ctx, who, req); e != nil {
		return &pb.TabletResponse{Error: e}
	}
	if asked != nil && asked.Now >= asked.MetExpiry {
		s.endMet(ctx, who, asked, asked != req.GetCheckTxnStatus())
	}
	// The request contains the tablet id and epoch that the client assumes; the node locates
	// it by its own map.
	d := &pb.TabletDescriptor{TabletId: req.TabletId, Epoch: req.Epoch}
	resp, err := s.transport.Send(ctx, d, req)
	// The answer must preserve the difference between "not applied" and "unknown".
	switch {
	case errors.Is(err, txn.ErrNotSent):
		return wire.Failure(pb.Error_CODE_UNAVAILABLE, "%v", err)
	case err != nil:
		return wire.Failure(pb.Error_CODE_UNKNOWN, "%v", err)
	}
	if asked != nil {
		resp = s.withoutNamed(ctx, who, asked, resp)
	}
	return s.grants.answer(who, resp)
}

// endMet ends up to txn.MaxMet of the locks that the caller names, if the transaction is decided or
// they have expired. It leaves cells that the caller may not read and, unless all is set, those
// whose locks the caller may end. A client that may only read a cell, or may not write the table of
// the lock's primary (weaken), must be able to get past a dead lock. The node reads the lock
// itself, and the primary decides by the oracle's time, so a client cannot end a lock that has not
// expired.
func (s *service) endMet(ctx context.Context, who Caller, check *pb.CheckTxnStatusRequest, all bool) {
	if s.cfg.Resolve == nil {
		return
	}
	for _, c := range check.Met[:min(len(check.Met), txn.MaxMet)] {
		read := &pb.TabletRequest{Op: &pb.TabletRequest_Get{
			Get: &pb.GetRequest{Cells: []*pb.Cell{c}},
		}}
		end := &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{
			ResolveLock: &pb.ResolveLockRequest{Cells: []*pb.Cell{c}},
		}}
		if s.refuse(ctx, who, read) != nil || !all && s.refuse(ctx, who, end) == nil {
			continue
		}
		live, err := s.cfg.Resolve(ctx, wire.Cell(c), mvcc.Timestamp(check.StartTs))
		if err != nil {
			s.cfg.Logger.Debug("a lock that a client has met was not resolved", "error", err)
		}
		if err != nil || live { // the transaction's other locks have the same state
			return
		}
	}
}

// withoutNamed removes the cells of an asynchronous commit from the answer to a status check of its
// primary, if the caller may not end all of them (docs/adr/0062): it could not decide the
// transaction, and need not learn their names. The node decides it at once in the caller's place,
// and ends the locks that the caller has encountered and may read. The caller is told that the
// transaction is alive, and reads again.
func (s *service) withoutNamed(ctx context.Context, who Caller, check *pb.CheckTxnStatusRequest,
	resp *pb.TabletResponse) *pb.TabletResponse {
	m := resp.GetMutation()
	if len(m.GetLocks()) == 0 || len(m.Locks[0].GetLock().GetSecondaries()) == 0 {
		return resp
	}
	cells := append([]*pb.Cell{check.Primary}, m.Locks[0].Lock.Secondaries...)
	end := &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{
		Rollback: &pb.RollbackRequest{StartTs: check.StartTs, Cells: cells},
	}}
	if s.refuse(ctx, who, end) == nil {
		return resp
	}
	s.endMet(ctx, who, check, true)
	return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{
		Mutation: &pb.MutationResult{Status: m.Status}}}
}

// maxDeadline is the maximum of a client's deadline, in milliseconds.
const maxDeadline = 600_000

// maxLockBytes is the maximum size of the locks reported in a mutation's answer: the memory
// reserved for it. A retry reports the others.
const maxLockBytes = 16 << 10

// fit returns an answer with its size in bytes. It shortens a read of many cells to maxGetBytes
// and the locks that a mutation encountered to maxLockBytes: the client requests the rest. Any
// other answer above MaxOperation becomes an error. Responses are immutable, so a shortened one is
// a new message.
func fit(resp *pb.TabletResponse) (*pb.TabletResponse, int) {
	size := proto.Size(resp)
	results, m := resp.GetGet().GetResults(), resp.GetMutation()
	switch {
	case size > maxLockBytes && len(m.GetLocks()) > 1:
		resp = &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{
			Status: m.Status, CommitTs: m.CommitTs, Locks: fitting(m.Locks, maxLockBytes), ConflictAt: m.ConflictAt,
		}}}
	case size > maxGetBytes && len(results) > 1:
		resp = &pb.TabletResponse{Result: &pb.TabletResponse_Get{
			Get: &pb.GetResponse{Results: fitting(results, maxGetBytes), At: resp.GetGet().GetAt()},
		}}
	case size > MaxOperation:
		resp = wire.Failure(pb.Error_CODE_TOO_LARGE, "the answer is larger than a message: ask for less")
	default:
		return resp, size
	}
	return resp, proto.Size(resp)
}

// fitting returns the first messages, at least one, that together have at most the number of bytes.
func fitting[M proto.Message](all []M, most int) []M {
	for i, size := 0, 0; i < len(all); i++ {
		if size += proto.Size(all[i]); size > most && i > 0 {
			return all[:i]
		}
	}
	return all
}
