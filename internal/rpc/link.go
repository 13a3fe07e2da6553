package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
)

// errBroken means that the connection failed. Unless the error also wraps txn.ErrNotSent, the
// operation may or may not have been applied.
var errBroken = txn.NewError("connection lost")

// link is one address: a connection and, from its first operation on, one Operations stream. The
// goroutine run opens streams and sends; each stream has another goroutine that receives.
// Callers only queue their operation and wait.
//
// One stream carries the operations of all goroutines of the process. run sends all that was
// queued during its previous send, so messages grow with the load, and no operation waits for
// a timer unless Linger is set.
type link struct {
	conn   *grpc.ClientConn
	rpc    pb.PercolatorClient
	addr   string
	sole   bool // the client has no other address: retry a refused connection
	works  bool // ClientConfig.Works
	cfg    BatchConfig
	logger *slog.Logger
	tracer *tracing.Tracer
	ctx    context.Context
	cancel context.CancelFunc
	loop   sync.WaitGroup

	nextID     atomic.Uint64 // of calls; never reused, so an answer can't match another call
	unanswered atomic.Int64  // number of calls with a waiting caller

	mu     sync.Mutex
	queue  []*call // not sent yet
	closed bool
	wake   chan struct{} // capacity 1: queue is not empty
}

// stream is one Operations stream and the calls sent on it. A call is in pending from add
// until its answer or the end of the stream, whichever comes first under the mutex.
type stream struct {
	addr   string // of the server
	rpc    grpc.BidiStreamingClient[pb.OperationBatch, pb.OperationResults]
	cancel context.CancelFunc
	broken chan struct{} // closed when receiving has ended

	mu      sync.Mutex
	pending map[uint64]*call
	err     error // why the stream ended; valid once broken is closed
}

// call is one operation. Its state determines who owns the outcome: while it is queued, the
// sender may take it and its caller may cancel it. After it is sent only the stream answers
// it.
type call struct {
	id     uint64
	req    *pb.TabletRequest
	span   *tracing.Span // nil: not traced
	state  atomic.Int32
	answer chan callAnswer // capacity 1
}

const (
	callQueued int32 = iota
	callSent
	callDropped
)

type callAnswer struct {
	resp   *pb.TabletResponse
	leader string
	err    error
}

// newLink returns a link over the connection and starts its goroutine.
func newLink(conn *grpc.ClientConn, addr string, sole bool, cfg ClientConfig) *link {
	l := &link{
		conn: conn, rpc: pb.NewPercolatorClient(conn), addr: addr, sole: sole, works: cfg.Works,
		cfg: cfg.Batch.withDefaults(), logger: cfg.Logger, tracer: cfg.Tracer,
		wake: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.loop.Go(l.run)
	return l
}

// send queues the operation and waits for its answer, with the address of the tablet's leader if
// the answer names one, or for the end of ctx. The error wraps txn.ErrNotSent only if the
// operation did not leave this process, or the server refused the connection and has not started
// it, and also a txn.OverloadedError if the queue is full.
func (l *link) send(ctx context.Context, req *pb.TabletRequest) (resp *pb.TabletResponse,
	leader string, err error) {
	if l.unanswered.Add(1) > int64(l.cfg.QueueLimit) {
		l.unanswered.Add(-1)
		return nil, "", txn.Errorf("%w: %w", txn.ErrNotSent, &txn.OverloadedError{
			RetryAfter: 10 * time.Millisecond, Message: "too many operations wait for " + l.addr,
		})
	}
	defer l.unanswered.Add(-1)
	c := &call{id: l.nextID.Add(1), req: req, answer: make(chan callAnswer, 1)}
	c.span = l.tracer.Operation(req, "percolator.send")
	defer c.span.End()
	l.mu.Lock()
	// Check under the mutex, so that nothing is queued after the last drop.
	if l.closed {
		l.mu.Unlock()
		return nil, "", txn.Errorf("%w: %w", txn.ErrNotSent, txn.ErrClosed)
	}
	l.queue = append(l.queue, c)
	first := len(l.queue) == 1
	l.mu.Unlock()
	// Only the caller that finds the queue empty wakes run.
	if first {
		l.notify()
	}
	// The stream on which the call is sent, or drop, sends the answer.
	select {
	case a := <-c.answer:
		return a.resp, a.leader, a.err
	case <-ctx.Done():
		// The first change of the state decides: the call is either dropped here or sent.
		if c.state.CompareAndSwap(callQueued, callDropped) {
			return nil, "", txn.Errorf("%w: %w", txn.ErrNotSent, ctx.Err())
		}
		return nil, "", ctx.Err()
	}
}

// notify wakes run, unless a wake-up is already pending.
func (l *link) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends queued operations until the link is closed. It opens a new stream whenever the
// last one has broken.
func (l *link) run() {
	var s *stream
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			// Drop before waiting for the stream's end: nothing queued will be sent.
			l.drop(txn.ErrClosed)
			if s != nil {
				s.end()
			}
			return
		}
		_ = txn.Sleep(l.ctx, l.cfg.Linger) // to batch more operations
		// Open a stream only when there is something to send, so that an idle client does
		// nothing.
		if s != nil && s.isBroken() {
			s.end()
			s = nil
		}
		if s == nil {
			var err error
			if s, err = l.open(); err != nil {
				l.drop(txn.Errorf("%w: open a stream to %s: %w", errBroken, l.addr, err))
				continue
			}
		}
		l.flush(s)
	}
}

// open opens a stream. It fails after connectTimeout without a connection, or at once if the
// connection is refused and there are other addresses.
func (l *link) open() (*stream, error) {
	// The stream's context must outlive the attempt to open it, so a timer bounds the attempt.
	ctx, cancel := context.WithCancel(l.ctx)
	timer := time.AfterFunc(connectTimeout, cancel)
	if l.works {
		ctx = withWorks(ctx)
	}
	rpc, err := l.rpc.Operations(ctx, grpc.WaitForReady(l.sole))
	// A fired timer has canceled the stream's context, even if opening succeeded.
	if err != nil || !timer.Stop() {
		cancel()
		if err == nil {
			err = context.DeadlineExceeded
		}
		return nil, fromStatus(err)
	}
	s := &stream{
		addr: l.addr, rpc: rpc, cancel: cancel,
		broken: make(chan struct{}), pending: make(map[uint64]*call),
	}
	l.loop.Go(s.receive)
	return s, nil
}

// flush sends all queued operations, in messages within the limits. Send blocks while the
// server does not read; operations queued in the meantime are sent in the next round.
func (l *link) flush(s *stream) {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for len(queue) > 0 {
		batch := &pb.OperationBatch{}
		taken, size := 0, 0
		for taken < len(queue) && len(batch.Operations) < l.cfg.MaxMessages {
			c := queue[taken]
			// A single operation larger than MaxBytes is sent alone.
			if size += proto.Size(c.req); len(batch.Operations) > 0 && size > l.cfg.MaxBytes {
				break
			}
			taken++
			// Once added, the stream owns its outcome, whether Send succeeds or not.
			if s.add(c) {
				c.span.Event("sent")
				batch.Operations = append(batch.Operations, &pb.Operation{Id: c.id, Request: c.req})
			}
		}
		queue = queue[taken:]
		// All the callers have been canceled.
		if len(batch.Operations) == 0 {
			continue
		}
		if err := s.rpc.Send(batch); err != nil {
			s.cancel() // receive gets the error and answers the sent calls
			<-s.broken
			l.unsent(queue)
			return
		}
	}
}

// unsent puts operations that were not sent back at the head of the queue and wakes run, which
// opens a new stream for them.
func (l *link) unsent(queue []*call) {
	if len(queue) == 0 {
		return
	}
	l.mu.Lock()
	l.queue = append(queue, l.queue...)
	l.mu.Unlock()
	l.notify()
}

// drop answers all queued operations with an error that wraps txn.ErrNotSent.
func (l *link) drop(cause error) {
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.closed = l.closed || l.ctx.Err() != nil
	l.mu.Unlock()
	for _, c := range queue {
		if c.state.CompareAndSwap(callQueued, callSent) {
			c.answer <- callAnswer{err: txn.Errorf("%w: %w", txn.ErrNotSent, cause)}
		}
	}
}

// close ends the stream and the goroutines. run answers the queued operations before it
// returns.
func (l *link) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.loop.Wait()
	return l.conn.Close()
}

// add records that the call is sent on this stream. It returns false if its caller was
// canceled or the stream has ended.
func (s *stream) add(c *call) bool {
	if !c.state.CompareAndSwap(callQueued, callSent) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// receive has answered all pending calls and would not answer later ones.
	if s.err != nil { // the stream has ended, so this was not sent
		c.answer <- callAnswer{err: txn.Errorf("%w: %w: %s: %w", txn.ErrNotSent, errBroken, s.addr, s.err)}
		return false
	}
	s.pending[c.id] = c
	return true
}

// receive dispatches answers until the stream ends. Then it answers the pending calls with
// errBroken, and with txn.ErrNotSent too if the server has refused the connection.
func (s *stream) receive() {
	var err error
	for err == nil {
		var results *pb.OperationResults
		if results, err = s.rpc.Recv(); err == nil {
			s.dispatch(results)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	lost := txn.Errorf("%w: receive answers from %s: %w", errBroken, s.addr, fromStatus(err))
	// The server refused the connection for lack of room and has not started any operation of
	// the stream.
	if refused(lost) {
		lost = txn.Errorf("%w: %w", txn.ErrNotSent, lost)
	}
	for _, c := range s.pending {
		c.answer <- callAnswer{err: lost}
	}
	clear(s.pending)
	s.cancel()
	close(s.broken)
}

// refused reports whether the server refused the connection for lack of room. It has not
// started the call.
func refused(err error) bool {
	var refusal *txn.ServerError
	return errors.As(err, &refusal) && refusal.Code == pb.Error_CODE_OVERLOADED
}

// dispatch sends each answer to its call. It ignores empty answers and those without a call:
// the server is trusted no more than the network.
func (s *stream) dispatch(results *pb.OperationResults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results.Results {
		if c := s.pending[r.GetId()]; c != nil && r.Response != nil {
			delete(s.pending, r.Id)
			c.span.Event("received")
			c.answer <- callAnswer{resp: r.Response, leader: r.Leader}
		}
	}
}

// isBroken reports whether receiving has ended.
func (s *stream) isBroken() bool {
	select {
	case <-s.broken:
		return true
	default:
		return false
	}
}

// end cancels the stream and waits until all its calls are answered.
func (s *stream) end() {
	s.cancel()
	<-s.broken
}
