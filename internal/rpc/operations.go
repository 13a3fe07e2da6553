package rpc

import (
	"cmp"
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// operations is one client's stream on the server: a reader, up to MaxInFlight workers, and a
// writer that batches all ready answers into one message.
//
// Each has its own goroutine. Operations joins them, except for the reader: gRPC ends it when
// the handler returns. Tasks in workers and answers in ready are in flight; each holds its
// part of the connection's memory until the writer releases it. The mutex guards ended and
// ready.
type operations struct {
	performer
	stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx    context.Context
	taking context.Context // ends when no more work is accepted
	conn   *clientConn
	work   chan task     // unbuffered: to an idle worker, otherwise a new one is started
	room   chan struct{} // a token for each worker, MaxInFlight at most
	wg     sync.WaitGroup

	mu    sync.Mutex
	ended bool // taking has ended: start no more workers
	ready []answered
	wake  chan struct{} // capacity 1: ready is not empty
}

// answered is an answer, its size in bytes, and the memory that its operation holds until the
// answer is written.
type answered struct {
	*pb.OperationResult
	bytes int
	held  int64
}

// Operations serves one stream until the client ends it, it breaks, or the server drains. Unless
// the stream breaks, accepted operations are finished and answered; to the client, the replies to
// all others are lost.
func (s *service) Operations(stream grpc.BidiStreamingServer[pb.OperationBatch,
	pb.OperationResults]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	o := &operations{
		stream: stream, ctx: ctx, taking: taking, conn: connection(ctx),
		work: make(chan task), room: make(chan struct{}, s.cfg.MaxInFlight),
		wake: make(chan struct{}, 1),
	}
	who, err := callerOf(ctx, &s.cfg)
	if err != nil {
		return err
	}
	who.works = worksIn(ctx) && who.Role.Includes(certs.Observer)
	// The listener is not from Serve, so the connection has no memory limit.
	if o.conn == nil {
		return status.Error(codes.Internal, "the connection is not known")
	}
	o.performer = performer{s: s, who: who, memory: o.conn.memory}
	// The writer ends last, so that every accepted operation is answered, also while draining.
	written, read, idle := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		err := o.write(idle)
		cancel() // a failed writer ends the stream
		written <- err
	}()
	go func() { // ends when this handler returns, even if blocked in Recv
		read <- o.read()
	}()
	// The client has ended the stream, it broke, or Shutdown has begun.
	var failed error
	select {
	case failed = <-read:
	case <-s.draining:
	case <-ctx.Done():
	}
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	stop()
	o.wg.Wait()
	close(idle)
	err = cmp.Or(failed, <-written)
	for _, a := range o.ready { // queued after the writer had failed: release their memory
		o.memory.give(a.held)
	}
	return err
}

// read hands operations to workers. While all are busy, or memory is exhausted, it stops
// reading, and flow control slows the client down. Its only errors are a panic and a revoked
// certificate; the end of the stream is not an error.
func (o *operations) read() (failed error) {
	// Nothing below panics while it holds memory that is not in a task.
	defer recovered(o.s.cfg.Logger, pb.Percolator_Operations_FullMethodName, &failed)
	for {
		batch, err := o.stream.Recv()
		if err != nil {
			return nil
		}
		if err := o.who.checkRevoked(o.ctx, &o.s.cfg); err != nil {
			return err
		}
		for _, op := range batch.Operations {
			// Ignore an empty operation.
			if op.GetRequest() == nil {
				continue
			}
			t := o.task(op.Request)
			t.id = op.Id
			if o.memory.take(o.taking, t.held) != nil {
				return nil
			}
			if !o.hand(t) {
				o.memory.give(t.held)
				return nil
			}
		}
	}
}

// hand passes the operation to an idle worker, or to a new one. It returns false when no more
// work is accepted.
func (o *operations) hand(t task) bool {
	// An idle worker is cheaper than a new goroutine: its stack has already grown.
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
	// Start no worker after ended: the stream is waiting for its workers then.
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.wg.Go(func() { o.worker(t) })
	}
	return !o.ended
}

// perform executes an operation and queues its answer.
func (o *operations) perform(t task) {
	resp, bytes := o.execute(o.ctx, &t, &o.conn.use)
	o.answer(answered{&pb.OperationResult{
		Id: t.id, Response: resp, Leader: o.s.leaderOf(t.request.TabletId),
	}, bytes, t.held})
}

// worker performs operations one after another until no more work is accepted.
func (o *operations) worker(t task) {
	defer func() { <-o.room }()
	for {
		o.perform(t)
		select {
		case t = <-o.work:
		case <-o.taking.Done():
			return
		}
	}
}

// answer queues an answer for the writer.
func (o *operations) answer(a answered) {
	o.mu.Lock()
	o.ready = append(o.ready, a)
	first := len(o.ready) == 1
	o.mu.Unlock()
	if !first {
		return
	}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// write sends answers until idle is closed and no answer is left, or sending fails.
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

// writeAll sends answers in as few messages as possible and releases their operations' memory,
// even if sending fails. It returns the first error.
func (o *operations) writeAll(ready []answered) (err error) {
	for len(ready) > 0 {
		batch, bytes, held := &pb.OperationResults{}, 0, int64(0)
		for _, a := range ready {
			// One answer always fits, whatever its size.
			if len(batch.Results) > 0 && bytes+a.bytes > maxGetBytes {
				break
			}
			bytes, held = bytes+a.bytes, held+a.held
			batch.Results = append(batch.Results, a.OperationResult)
		}
		clear(ready[:len(batch.Results)])
		ready = ready[len(batch.Results):]
		if err == nil {
			err = o.send(batch, bytes)
		}
		o.memory.give(held)
	}
	return err
}

// writeQuota is the number of unwritten bytes of a stream that gRPC buffers.
const writeQuota = 64 << 10

// send sends a message and returns when gRPC has written all but writeQuota of it. If the
// client does not read it within WriteTimeout, send closes the connection: only that frees
// gRPC's buffers. A panic becomes an error, so that writeAll releases the answers' memory.
func (o *operations) send(batch *pb.OperationResults, bytes int) (err error) {
	defer recovered(o.s.cfg.Logger, pb.Percolator_Operations_FullMethodName, &err)
	late := time.AfterFunc(o.s.cfg.WriteTimeout, func() {
		o.s.cfg.Logger.Warn("a connection is closed: its client does not read its answers",
			"from", o.conn.RemoteAddr(), "within", o.s.cfg.WriteTimeout)
		o.s.counters.unread.Add(1)
		_ = o.conn.Close()
	})
	defer late.Stop()
	if err := o.stream.Send(batch); err != nil || bytes <= writeQuota {
		return err
	}
	// gRPC accepts this empty message only after it has written the previous one.
	return o.stream.Send(&pb.OperationResults{})
}
