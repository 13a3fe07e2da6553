package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/txn"
)

// operations is one client's stream on the server: a reader, up to MaxInFlight workers, and a writer that puts all
// answers that are ready into one message.
type operations struct {
	s      *service
	stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx    context.Context
	work   chan *pb.Operation // unbuffered: taken by an idle worker, or else a new one begins
	room   chan struct{}      // one place per worker
	wg     sync.WaitGroup

	stop  chan struct{} // closed when no more work is taken
	mu    sync.Mutex
	ended bool // stop is closed: no more workers
	ready []*pb.OperationResult
	wake  chan struct{} // capacity 1: there is something in ready
}

// Operations serves one stream until the client ends it, it breaks, or the server drains: then what has been taken is
// finished and answered, and the rest of the client's operations are lost replies to it.
func (s *service) Operations(stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	o := &operations{
		s: s, stream: stream, ctx: ctx, work: make(chan *pb.Operation), stop: make(chan struct{}),
		room: make(chan struct{}, s.cfg.MaxInFlight), wake: make(chan struct{}, 1),
	}
	// The writer ends last, so that every operation that was taken is answered, also while draining.
	written, idle, read := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		err := o.write(idle)
		cancel() // a writer that failed ends the stream
		written <- err
	}()
	go func() { // blocked in Recv it ends when this handler returns
		defer close(read)
		o.read()
	}()
	select {
	case <-read:
	case <-s.draining:
	case <-ctx.Done():
	}
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	close(o.stop)
	o.wg.Wait()
	close(idle)
	return <-written
}

// read hands operations to workers. While all are busy it does not read on: flow control holds the client back.
func (o *operations) read() {
	for {
		batch, err := o.stream.Recv()
		if err != nil {
			return // the client has gone or ended; there is nobody to tell
		}
		for _, op := range batch.Operations {
			if op == nil || op.Request == nil {
				continue
			}
			if !o.hand(op) {
				return
			}
		}
	}
}

// hand gives the operation to an idle worker, or to a new one; false when no more work is taken.
func (o *operations) hand(op *pb.Operation) bool {
	// A worker's stack has grown to what operations need: an idle one is cheaper than a new goroutine.
	select {
	case o.work <- op:
		return true
	default:
	}
	select {
	case o.work <- op:
		return true
	case o.room <- struct{}{}:
	case <-o.stop:
		return false
	}
	// Not after ended: the stream waits for its workers then, and must know all of them.
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.wg.Go(func() { o.worker(op) })
	}
	return !o.ended
}

// worker does operations one after the other until the stream ends.
func (o *operations) worker(op *pb.Operation) {
	defer func() { <-o.room }()
	for {
		o.answer(&pb.OperationResult{Id: op.Id, Response: o.s.do(o.ctx, op.Request)})
		select {
		case op = <-o.work:
		case <-o.stop:
			return
		}
	}
}

// answer queues an answer for the writer, which takes all that are ready at once.
func (o *operations) answer(r *pb.OperationResult) {
	o.mu.Lock()
	o.ready = append(o.ready, r)
	first := len(o.ready) == 1
	o.mu.Unlock()
	if first {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// write sends answers until idle is closed and none is left.
func (o *operations) write(idle <-chan struct{}) error {
	for last := false; !last; {
		select {
		case <-o.wake:
		case <-idle:
			last = true
		}
		o.mu.Lock()
		ready := o.ready
		o.ready = nil
		o.mu.Unlock()
		for len(ready) > 0 {
			n, size := 0, 0
			for n < len(ready) {
				size += proto.Size(ready[n].Response)
				if n > 0 && size > maxGetBytes {
					break
				}
				n++
			}
			if err := o.stream.Send(&pb.OperationResults{Results: ready[:n]}); err != nil {
				return err
			}
			ready = ready[n:]
		}
	}
	return nil
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
	// The client's belief about the tablet travels in the request; the node's own map knows where it is.
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

// fit cuts an answer to a read of many cells off where it grows too large; the client asks for the rest. Responses are
// immutable, so it is a new one.
func fit(resp *pb.TabletResponse) *pb.TabletResponse {
	if proto.Size(resp) <= maxGetBytes {
		return resp
	}
	if results := resp.GetGet().GetResults(); len(results) > 1 {
		n, size := 0, 0
		for n < len(results) && (n == 0 || size+len(results[n].Value) <= maxGetBytes) {
			size += len(results[n].Value)
			n++
		}
		return &pb.TabletResponse{Result: &pb.TabletResponse_Get{Get: &pb.GetResponse{Results: results[:n], At: resp.GetGet().GetAt()}}}
	}
	if proto.Size(resp) > MaxOperation {
		return failed(pb.Error_CODE_TOO_LARGE, "the answer is larger than a message: ask for less")
	}
	return resp
}
