package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// operations is one client's stream on the server: a reader, up to MaxInFlight workers,
// and a writer that puts all answers that are ready into one message.
type operations struct {
	s       *service
	stream  grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx     context.Context
	taking  context.Context // ends when no more work is taken
	share   *share          // of the budget for answers
	asked   *share          // of that for requests
	refused error           // why it is not read any more; after read
	work    chan task       // unbuffered: taken by an idle worker, or else a new one begins
	room    chan struct{}   // one place per worker
	wg      sync.WaitGroup

	mu     sync.Mutex
	ended  bool // taking has ended: no more workers
	ready  []answered
	expect [kinds]int    // what an answer is expected to take, in bytes
	later  []task        // refused for want of memory: done once there is as much as they need
	serves bool          // a worker sees to later
	wake   chan struct{} // capacity 1: there is something in ready
	flying int           // reads under way
	window int           // and at most so many: see firstWindow
	calm   chan struct{} // capacity 1: later, or flying, is less than it was
}

// task is an operation with the memory that its answer may take.
type task struct {
	*pb.Operation
	hold  hold
	needs int    // what it has turned out to need, in bytes; 0: not known
	taken *taken // what its message holds
	bytes int    // what it holds of that
}

// answered is an answer with the memory that it takes.
type answered struct {
	*pb.OperationResult
	hold hold
}

// Operations serves one stream until the client ends it, it breaks, the server drains, or
// others wait for the memory of answers that the client does not read. What has been
// taken is finished and answered, except in the last case, and the rest of the client's
// operations are lost replies to it.
func (s *service) Operations(stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]) error {
	conn := connection(stream.Context())
	if !conn.open() {
		return status.Errorf(codes.ResourceExhausted, "percolator: a connection has %d streams of operations at most", maxOperationStreams)
	}
	defer conn.close()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	o := newOperations(ctx, s, stream, s.budget.join(cancel), s.requests.join(cancel))
	defer o.asked.leave()
	var stop context.CancelFunc
	o.taking, stop = context.WithCancel(ctx)
	// The writer ends last, so that every operation that was taken is answered, also
	// while draining.
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
	stop()
	o.wg.Wait()
	close(idle)
	select {
	case err := <-written:
		o.share.leave()
		if err == nil {
			select {
			case <-read:
				return o.refused
			default:
			}
		}
		return err
	case <-o.share.ended: // the writer waits for the client, and ends with this handler
		s.cfg.Logger.Warn("a stream was ended: its client does not read, and others wait for the memory", "from", from(ctx))
		conn.hangUp(o.share.leave)
		return status.Error(codes.ResourceExhausted, errNotReading.Error())
	}
}

func newOperations(ctx context.Context, s *service, stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults], share, asked *share) *operations {
	return &operations{
		s: s, stream: stream, ctx: ctx, taking: ctx, share: share, asked: asked, work: make(chan task),
		room: make(chan struct{}, s.cfg.MaxInFlight), wake: make(chan struct{}, 1), calm: make(chan struct{}, 1), expect: firstAnswer, window: s.budget.startWindow(),
	}
}

// read hands operations to workers. While all are busy, or there is no memory for one
// more answer, or for the operations of one more message, it does not read on: flow
// control holds the client back.
func (o *operations) read() {
	conn := connection(o.stream.Context())
	for {
		in := &incoming{ctx: o.taking, share: o.asked, conn: conn}
		if o.stream.RecvMsg(in) != nil {
			return // the client has gone or ended; there is nobody to tell
		}
		if o.refused = in.refused; in.ended || in.refused != nil {
			return
		}
		for i, op := range in.batch.Operations {
			if op == nil || op.Request == nil {
				in.taken.done(in.each[i])
				continue
			}
			if !o.calmed(kindOf(op.Request)) {
				return
			}
			hold, ok := o.share.wait(o.taking, o.expects(op.Request))
			if !ok || !o.hand(task{Operation: op, hold: hold, taken: in.taken, bytes: in.each[i]}) {
				return // what is held is given back when the stream ends
			}
		}
	}
}

// hand gives the operation to an idle worker, or to a new one; false when no more work is taken.
func (o *operations) hand(t task) bool {
	// A worker's stack has grown to what operations need: an idle one is cheaper than a
	// new goroutine.
	select {
	case o.work <- t:
		return true
	default:
	}
	select {
	case o.work <- t:
		return true
	case o.room <- struct{}{}:
	case <-o.taking.Done():
		return false
	}
	// Not after ended: the stream waits for its workers then, and must know all of them.
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.wg.Go(func() { o.worker(t) })
	}
	return !o.ended
}

// worker does operations one after the other until the stream ends.
func (o *operations) worker(t task) {
	defer func() { <-o.room }()
	for {
		o.perform(t)
		o.serveLater()
		select {
		case t = <-o.work:
		case <-o.taking.Done():
			return
		}
	}
}

// done answers an operation, and gives back what it has held.
func (o *operations) done(t task, resp *pb.TabletResponse, held hold) {
	o.answer(answered{&pb.OperationResult{Id: t.Id, Response: resp}, held})
	t.taken.done(t.bytes)
}

// answer queues an answer for the writer, which takes all that are ready at once.
func (o *operations) answer(a answered) {
	o.mu.Lock()
	o.ready = append(o.ready, a)
	first := len(o.ready) == 1
	o.mu.Unlock()
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
		if err := o.writeAll(ready); err != nil {
			return err
		}
	}
	return nil
}

// writeAll sends answers, in as few messages as they fit into, and gives back their
// memory as it becomes free.
func (o *operations) writeAll(ready []answered) error {
	var under hold // what the message takes that gRPC has, and may not have written yet
	for len(ready) > 0 {
		var holds hold
		batch := &pb.OperationResults{}
		for _, r := range ready {
			if sum := holds.plus(r.hold); len(batch.Results) > 0 && sum.total() > maxGetBytes {
				break
			}
			holds = holds.plus(r.hold)
			batch.Results = append(batch.Results, r.OperationResult)
		}
		clear(ready[:len(batch.Results)])
		ready = ready[len(batch.Results):]
		if err := o.send(&outgoing{batch, holds.total()}); err != nil {
			return err
		}
		o.share.give(under)
		under = holds
	}
	// Send returns when all messages before have been written, but for writeQuota. One
	// without answers shows that of the last.
	if under.total() > writeQuota {
		if err := o.send(&outgoing{answers: &pb.OperationResults{}}); err != nil {
			return err
		}
	}
	o.share.give(under)
	return nil
}

// writeQuota is how much gRPC takes of a stream beyond what it has written.
const writeQuota = 64 << 10

// send sends a message; meanwhile it can be seen since when the client takes nothing.
func (o *operations) send(m *outgoing) error {
	o.share.sending.Store(time.Now().UnixNano())
	defer o.share.sending.Store(0)
	return o.stream.SendMsg(m)
}
