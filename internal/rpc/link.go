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
	"github.com/percolator-go/percolator/internal/txn"
)

// errBroken reports that the connection failed. The operation may or may not have been done.
var errBroken = txn.NewError("connection lost")

// link is one address: a connection and, while there is work, one Operations stream on
// it. The goroutine run opens streams and sends; each stream has another that receives.
// Callers only queue their operation and wait.
//
// One stream carries the operations of all goroutines of the process. run takes whatever
// has been queued since it last came round, so messages grow with the load, and no
// operation waits for a timer unless Linger is set.
type link struct {
	conn   *grpc.ClientConn
	rpc    pb.PercolatorClient
	addr   string
	sole   bool // there is no other address: a refused connection is waited for
	cfg    BatchConfig
	logger *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	loop   sync.WaitGroup

	nextID     atomic.Uint64 // of calls; never used twice, so an answer can't find the wrong call
	unanswered atomic.Int64  // calls that somebody waits for

	mu     sync.Mutex
	queue  []*call // not sent yet
	closed bool
	wake   chan struct{} // capacity 1: there is something in queue
}

// stream is one Operations stream and the calls that were put on it. A call stays in
// pending from add until its answer, or the end of the stream, whichever comes first; the
// mutex decides between the two.
type stream struct {
	rpc    grpc.BidiStreamingClient[pb.OperationBatch, pb.OperationResults]
	cancel context.CancelFunc
	broken chan struct{} // closed when receiving has ended

	mu      sync.Mutex
	pending map[uint64]*call
	err     error // why it ended, once broken
}

// call is one operation. Its state says who owns the outcome: the sender may take it only
// while it is queued, and so may a caller that gives up. After that only the stream
// answers it.
type call struct {
	id     uint64
	req    *pb.TabletRequest
	state  atomic.Int32
	answer chan callAnswer // capacity 1
}

const (
	callQueued int32 = iota
	callSent
	callDropped
)

type callAnswer struct {
	resp *pb.TabletResponse
	err  error
}

// newLink returns a link over the connection and starts its goroutine.
func newLink(conn *grpc.ClientConn, addr string, sole bool, cfg ClientConfig) *link {
	l := &link{
		conn: conn, rpc: pb.NewPercolatorClient(conn), addr: addr, sole: sole,
		cfg: cfg.Batch.withDefaults(), logger: cfg.Logger,
		wake: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.loop.Go(l.run)
	return l
}

// send queues the operation and waits for its answer or the end of ctx. An error wraps
// txn.ErrNotSent exactly if the operation surely did not leave this process, and also a
// txn.OverloadedError if the queue is full.
func (l *link) send(ctx context.Context, req *pb.TabletRequest) (*pb.TabletResponse, error) {
	if l.unanswered.Add(1) > int64(l.cfg.QueueLimit) {
		l.unanswered.Add(-1)
		return nil, txn.Errorf("%w: %w", txn.ErrNotSent, &txn.OverloadedError{
			RetryAfter: 10 * time.Millisecond, Message: "too many operations wait for " + l.addr,
		})
	}
	defer l.unanswered.Add(-1)
	c := &call{id: l.nextID.Add(1), req: req, answer: make(chan callAnswer, 1)}
	l.mu.Lock()
	// Under the mutex, so nothing is queued after the last drop.
	if l.closed {
		l.mu.Unlock()
		return nil, txn.Errorf("%w: %w", txn.ErrNotSent, txn.ErrClosed)
	}
	l.queue = append(l.queue, c)
	first := len(l.queue) == 1
	l.mu.Unlock()
	// Whoever finds the queue empty wakes run; the others go along.
	if first {
		l.rouse()
	}
	// The answer comes from the stream's receive or from drop, whichever owns the call.
	select {
	case a := <-c.answer:
		return a.resp, a.err
	case <-ctx.Done():
		// Whoever changes the state first decides: either it is dropped here, or it is on its way.
		if c.state.CompareAndSwap(callQueued, callDropped) {
			return nil, txn.Errorf("%w: %w", txn.ErrNotSent, ctx.Err())
		}
		return nil, ctx.Err()
	}
}

// rouse wakes run; a wake-up that is pending already is enough.
func (l *link) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run sends what is queued until the link is closed, over a new stream whenever the last
// one has broken.
func (l *link) run() {
	var s *stream
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			// Before the stream's end is waited for: nothing that is queued will be sent.
			l.drop(txn.ErrClosed)
			if s != nil {
				s.end()
			}
			return
		}
		_ = txn.Sleep(l.ctx, l.cfg.Linger) // so that more operations share the message
		// A stream is opened when there is something to send, not as soon as one has
		// broken: a client at rest does nothing.
		if s != nil && s.isBroken() {
			s.end()
			s = nil
		}
		if s == nil {
			var err error
			if s, err = l.open(); err != nil {
				l.drop(txn.Errorf("%w: %s: %w", errBroken, l.addr, err))
				continue
			}
		}
		l.flush(s)
	}
}

// open opens a stream. It fails if there is no connection within connectTimeout, or at
// once if the connection is refused and there are other addresses.
func (l *link) open() (*stream, error) {
	// The stream's context has to outlive the attempt to open it, so the attempt is
	// bounded by a timer.
	ctx, cancel := context.WithCancel(l.ctx)
	timer := time.AfterFunc(connectTimeout, cancel)
	rpc, err := l.rpc.Operations(ctx, grpc.WaitForReady(l.sole))
	// A timer that has fired has cancelled the stream's context, even if opening went
	// well.
	if err != nil || !timer.Stop() {
		cancel()
		if err == nil {
			err = context.DeadlineExceeded
		}
		return nil, fromStatus(err)
	}
	s := &stream{
		rpc: rpc, cancel: cancel, broken: make(chan struct{}), pending: make(map[uint64]*call),
	}
	l.loop.Go(s.receive)
	return s, nil
}

// flush sends all that is queued, in messages within the bounds. Send blocks while the
// server does not read; what comes meanwhile is queued for the next round.
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
			// A single operation may be larger than MaxBytes; it goes alone.
			if size += proto.Size(c.req); len(batch.Operations) > 0 && size > l.cfg.MaxBytes {
				break
			}
			taken++
			// From the moment it is added its outcome is the stream's to tell, whether
			// Send then succeeds or not.
			if s.add(c) {
				batch.Operations = append(batch.Operations, &pb.Operation{Id: c.id, Request: c.req})
			}
		}
		queue = queue[taken:]
		// The callers of all that were taken have given up.
		if len(batch.Operations) == 0 {
			continue
		}
		if err := s.rpc.Send(batch); err != nil {
			s.cancel() // receive finds out why, and answers what was sent
			<-s.broken
			l.unsent(queue)
			return
		}
	}
}

// unsent puts operations back at the head of the queue that were surely not sent, and
// wakes run, which opens a new stream for them.
func (l *link) unsent(queue []*call) {
	if len(queue) == 0 {
		return
	}
	l.mu.Lock()
	l.queue = append(queue, l.queue...)
	l.mu.Unlock()
	l.rouse()
}

// drop answers all that is queued with an error that wraps txn.ErrNotSent.
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

// close ends the stream and the goroutines. run answers what is queued on its way out.
func (l *link) close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.loop.Wait()
	return l.conn.Close()
}

// add records that the call goes out on this stream. It returns false if its caller has
// given up or the stream has ended.
func (s *stream) add(c *call) bool {
	if !c.state.CompareAndSwap(callQueued, callSent) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// receive has answered all that was pending; what is added after that nobody would answer.
	if s.err != nil { // the stream is gone, so this was not sent
		c.answer <- callAnswer{err: txn.Errorf("%w: %w: %w", txn.ErrNotSent, errBroken, s.err)}
		return false
	}
	s.pending[c.id] = c
	return true
}

// receive hands out answers until the stream ends. What has no answer then gets
// errBroken reports that it may have been done.
func (s *stream) receive() {
	var err error
	for err == nil {
		var results *pb.OperationResults
		if results, err = s.rpc.Recv(); err == nil {
			s.handOut(results)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	lost := txn.Errorf("%w: %w", errBroken, fromStatus(err))
	// The server had no place for the connection and has begun nothing of the stream.
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

// refused reports whether a server had no place for the connection: it has done nothing of the call.
func refused(err error) bool {
	var refusal *txn.ServerError
	return errors.As(err, &refusal) && refusal.Code == pb.Error_CODE_OVERLOADED
}

// handOut gives each answer to its call. Answers to nobody, and empty ones, are ignored:
// the server is not trusted more than the network.
func (s *stream) handOut(results *pb.OperationResults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results.Results {
		if c := s.pending[r.GetId()]; c != nil && r.Response != nil {
			delete(s.pending, r.Id)
			c.answer <- callAnswer{resp: r.Response}
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

// end cancels the stream and waits until all its calls have been answered.
func (s *stream) end() {
	s.cancel()
	<-s.broken
}
