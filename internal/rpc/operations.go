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

	stop   chan struct{} // closed when no more work is taken
	mu     sync.Mutex
	ended  bool // stop is closed: no more workers
	ready  []sized
	flying int           // operations that are not answered yet
	unsent int           // bytes of the answers that are
	typic  int           // bytes that an answer may have: the largest of late
	wake   chan struct{} // capacity 1: there is something in ready
	less   chan struct{} // capacity 1: flying or unsent is less than it was
}

// sized is an answer with its size in bytes.
type sized struct {
	*pb.OperationResult
	size int
}

// Memory that one stream's answers may take, about: a client that asks for much and reads nothing is not read on.
const (
	maxAnswers   = 64 << 20
	firstAnswer  = 1 << 20  // what an answer is taken for before there was one: a first burst may be of the largest
	leastAnswer  = 16 << 10 // and at least: 4096 of them are maxAnswers
	answersDecay = 16       // a part of the estimate that each smaller answer takes away
)

// Operations serves one stream until the client ends it, it breaks, or the server drains: then what has been taken is
// finished and answered, and the rest of the client's operations are lost replies to it.
func (s *service) Operations(stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	o := &operations{
		s: s, stream: stream, ctx: ctx, work: make(chan *pb.Operation), stop: make(chan struct{}),
		room: make(chan struct{}, s.cfg.MaxInFlight), wake: make(chan struct{}, 1), less: make(chan struct{}, 1),
		typic: firstAnswer,
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
			if !o.fits() || !o.hand(op) {
				return
			}
		}
	}
}

// fits waits until there is memory for one more answer; false when no more work is taken.
func (o *operations) fits() bool {
	for {
		o.mu.Lock()
		fits := o.flying+o.unsent == 0 || o.unsent+(o.flying+1)*o.typic <= maxAnswers
		if fits {
			o.flying++
		}
		o.mu.Unlock()
		if fits {
			return true
		}
		select {
		case <-o.less:
		case <-o.stop:
			return false
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
	size := proto.Size(r.Response)
	o.mu.Lock()
	o.ready = append(o.ready, sized{r, size})
	o.flying--
	o.unsent += size
	o.typic = max(size, o.typic-o.typic/answersDecay, leastAnswer)
	first := len(o.ready) == 1
	o.mu.Unlock()
	signal(o.less)
	if first {
		signal(o.wake)
	}
}

// signal fills a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
			size, batch := 0, &pb.OperationResults{}
			for _, r := range ready {
				if size > 0 && size+r.size > maxGetBytes {
					break
				}
				size += r.size
				batch.Results = append(batch.Results, r.OperationResult)
			}
			if err := o.stream.Send(batch); err != nil {
				return err
			}
			ready = ready[len(batch.Results):]
			o.mu.Lock()
			o.unsent -= size
			o.mu.Unlock()
			signal(o.less)
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
