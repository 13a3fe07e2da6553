package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// kind is what answers of about the same size have in common.
type kind int

const (
	mutations = kind(wire.SmallAnswer) // and what is as small
	cells     = kind(wire.CellsAnswer)
	pages     = kind(wire.PageAnswer)
	kinds     = pages + 1
)

func kindOf(req *pb.TabletRequest) kind { return kind(wire.OperationOf(req).Answer) }

// firstAnswer is what an answer is expected to take before there was one, and at least.
// It is about speed only: an answer that takes more is not made before there is room for
// it.
var firstAnswer = [kinds]int{mutations: 1 << 10, cells: 4 << 10, pages: 64 << 10}

const (
	answerFixed  = 256 // what an answer takes in the stream
	answersDecay = 16  // a part of what is expected that each smaller answer takes away
)

// expects is what is taken from the budget before the operation is done.
func (o *operations) expects(req *pb.TabletRequest) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.expect[kindOf(req)]
}

// firstWindow is how many reads are under way at once on a stream that is new, or has
// just had one refused: what turns out to need more memory is done in vain first. Each
// answer makes it one more, so that it doubles in the time that one takes. Reads that
// wait for something of their own must not hold up the others for long: after overdue,
// one more goes on.
const (
	firstWindow = 32
	overdue     = 20 * time.Millisecond
)

// startWindow is the firstWindow of a stream now. Where much of the budget is held
// already, nothing is done in vain but one: streams that come again and again, for what
// there is no room for, would keep the node busy with that.
func (b *budget) startWindow() int {
	if b.gauge.Crowded() {
		return 1
	}
	return firstWindow
}

// learn notes what an answer takes, and whether that was expected.
func (o *operations) learn(k kind, bytes int, expected bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k != mutations {
		o.flying--
		if o.window++; !expected {
			o.window = o.s.budget.startWindow()
		}
		signal(o.calm)
	}
	e := o.expect[k]
	o.expect[k] = min(max(bytes, e-e/answersDecay, firstAnswer[k]), o.share.largest())
}

// perform has an operation done with the memory that is held for its answer, and answers
// it, unless it turns out to need more than there is: then it is for later, and holds
// nothing.
func (o *operations) perform(t task) {
	k := kindOf(t.Request)
	// Another message each time: the one before may be on its way yet.
	r := t.Request
	resp := o.s.do(o.ctx, &pb.TabletRequest{
		TabletId: r.TabletId, Epoch: r.Epoch, DeadlineMs: r.DeadlineMs, MaxAnswerBytes: uint32(t.hold.total() - answerFixed), Op: r.Op,
	})
	if n := int(resp.GetError().GetNeedsBytes()) + answerFixed; n > answerFixed {
		o.learn(k, n, false)
		if n <= o.share.largest() {
			o.share.give(t.hold)
			o.postpone(task{Operation: t.Operation, needs: n, taken: t.taken, bytes: t.bytes})
			return
		}
		refusal := failed(pb.Error_CODE_TOO_LARGE, "the answer is too large: ask for less")
		o.done(t, refusal, t.hold)
		return
	}
	n := wire.AnswerMemory(resp) + answerFixed
	o.learn(k, n, true)
	hold, ok := o.share.settle(t.hold, n)
	if !ok {
		resp = less(k, resp, n)
	}
	o.done(t, resp, hold)
}

// maxLater is how many postponed operations a stream may have and still be read: those
// that are under way then may follow.
const maxLater = 64

// calmed waits until one more operation of the kind may be under way; false when no more
// work is taken.
func (o *operations) calmed(k kind) bool {
	if k == mutations { // what they answer is small: none is done in vain
		return o.taking.Err() == nil
	}
	var late *time.Timer // made when something is waited for
	for patient := true; ; {
		o.mu.Lock()
		may := len(o.later) < maxLater && (o.flying < o.window || !patient)
		if may {
			o.flying++
		}
		o.mu.Unlock()
		if may {
			return true
		}
		if late == nil {
			late = time.NewTimer(overdue) // not stopped: there is nothing to free
		}
		select {
		case <-o.calm:
		case <-late.C:
			patient = false
		case <-o.taking.Done():
			return false
		}
	}
}

// postpone has the operation done when there is memory for it.
func (o *operations) postpone(t task) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.later = append(o.later, t)
}

// serveLater sees to what is postponed, one worker of a stream at a time: the others need not wait.
func (o *operations) serveLater() {
	for first := true; ; first = false {
		o.mu.Lock()
		if first && o.serves || len(o.later) == 0 {
			if !first {
				o.serves = false
			}
			o.mu.Unlock()
			return
		}
		o.serves = true
		t := o.later[0]
		o.later = o.later[1:]
		if kindOf(t.Request) != mutations {
			o.flying++
		}
		o.mu.Unlock()
		signal(o.calm)
		hold, ok := o.share.wait(o.taking, t.needs)
		if !ok { // no more work is taken: surely not done
			resp := failed(pb.Error_CODE_UNAVAILABLE, "the node takes no more operations on this stream")
			o.done(t, resp, hold)
			continue
		}
		t.hold = hold
		select {
		case o.work <- t: // another worker is idle
		default:
			o.perform(t)
		}
	}
}

// less is what goes out in place of an answer that there is no room for. Nodes make no
// such answer to a read, and what mutations answer is small, unless they meet many locks:
// those that are left out the client meets the next time.
func less(k kind, resp *pb.TabletResponse, bytes int) *pb.TabletResponse {
	if k != mutations {
		return &pb.TabletResponse{Error: &pb.Error{
			Code: pb.Error_CODE_OVERLOADED, RetryAfterMs: 10, Message: fmt.Sprintf("there is no room for an answer of %d bytes", bytes),
		}}
	}
	if m := resp.GetMutation(); len(m.GetLocks()) > 1 {
		return &pb.TabletResponse{Result: &pb.TabletResponse_Mutation{Mutation: &pb.MutationResult{
			Status: m.Status, CommitTs: m.CommitTs, Locks: m.Locks[:1], ConflictAt: m.ConflictAt,
		}}}
	}
	return resp
}

// do has one operation done. It never panics and never returns more than fits into a message.
func (s *service) do(ctx context.Context, req *pb.TabletRequest) (resp *pb.TabletResponse) {
	defer func() {
		if r := recover(); r != nil {
			s.cfg.Logger.Error("operation panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			resp = failed(pb.Error_CODE_INTERNAL, "percolator: internal error")
		}
	}()
	table, e := admit(req)
	if e != nil {
		return &pb.TabletResponse{Error: e}
	}
	if req.DeadlineMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, min(time.Duration(req.DeadlineMs), maxDeadline)*time.Millisecond)
		defer cancel()
	}
	if e := s.future(ctx, req); e != nil {
		return &pb.TabletResponse{Error: e}
	}
	if e := s.tables.check(ctx, table); e != nil {
		return &pb.TabletResponse{Error: e}
	}
	// The client's belief about the tablet travels in the request; the node's own map
	// knows where it is.
	d := &pb.TabletDescriptor{TabletId: req.TabletId, Epoch: req.Epoch}
	resp, err := s.transport.Send(ctx, d, req)
	// The difference between "surely not done" and "unknown" must survive the way to the client.
	switch {
	case errors.Is(err, txn.ErrNotSent):
		return failed(pb.Error_CODE_UNAVAILABLE, err.Error())
	case err != nil:
		return failed(pb.Error_CODE_UNKNOWN, err.Error())
	}
	return fit(resp)
}

// maxDeadline bounds a client's deadline, in milliseconds.
const maxDeadline = 600_000

// failed is an answer without a result.
func failed(code pb.Error_Code, message string) *pb.TabletResponse {
	return &pb.TabletResponse{Error: &pb.Error{Code: code, Message: message}}
}

// fit cuts an answer to a read of many cells off where it grows too large; the client
// asks for the rest. Responses are immutable, so it is a new one.
func fit(resp *pb.TabletResponse) *pb.TabletResponse {
	if proto.Size(resp) <= maxGetBytes {
		return resp
	}
	if results := resp.GetGet().GetResults(); len(results) > 1 {
		n, size := 0, 0
		for n < len(results) {
			if size += proto.Size(results[n]); size > maxGetBytes && n > 0 {
				break
			}
			n++
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: &pb.GetResponse{Results: results[:n], At: resp.GetGet().GetAt()}}}
	}
	if proto.Size(resp) > MaxOperation {
		return failed(pb.Error_CODE_TOO_LARGE, "the answer is larger than a message: ask for less")
	}
	return resp
}
