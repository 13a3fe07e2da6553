package rpc

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// operations is one client's stream on the server: a reader, up to MaxInFlight workers,
// and a writer that puts all answers that are ready into one message.
//
// Each has a goroutine, which Operations joins, but for the reader: gRPC ends that when
// the handler returns. In flight are tasks with workers and answers in ready; each holds
// its part of the connection's memory until the writer gives it back. The mutex guards
// ended and ready.
type operations struct {
	s      *service
	stream grpc.BidiStreamingServer[pb.OperationBatch, pb.OperationResults]
	ctx    context.Context
	taking context.Context // ends when no more work is taken
	conn   *clientConn
	who    Caller
	work   chan task     // unbuffered: taken by an idle worker, or else a new one begins
	room   chan struct{} // one place per worker
	wg     sync.WaitGroup
	cells  atomic.Int64 // about what the last answers to reads of cells took, in bytes

	mu    sync.Mutex
	ended bool // taking has ended: no more workers
	ready []answered
	wake  chan struct{} // capacity 1: there is something in ready
}

// task is an operation with the memory that it holds.
type task struct {
	*pb.Operation
	held, room int64 // room is the part of it for the answer
}

// answered is an answer of so many bytes, with the memory that its operation holds until
// it is written.
type answered struct {
	*pb.OperationResult
	bytes int
	held  int64
}

// Operations serves one stream until the client ends it, it breaks, or the server drains.
// What has been taken is finished and answered; the rest of the client's operations are
// lost replies to it.
func (s *service) Operations(stream grpc.BidiStreamingServer[pb.OperationBatch,
	pb.OperationResults]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	taking, stop := context.WithCancel(ctx)
	defer stop()
	o := &operations{
		s: s, stream: stream, ctx: ctx, taking: taking, conn: connection(ctx),
		work: make(chan task), room: make(chan struct{}, s.cfg.MaxInFlight),
		wake: make(chan struct{}, 1),
	}
	var err error
	if o.who, err = callerOf(ctx, &s.cfg); err != nil {
		return err
	}
	// The listener was not one of Serve's: without a share there is no bound.
	if o.conn == nil {
		return status.Error(codes.Internal, "percolator: the connection is not known")
	}
	// The writer ends last, so that every operation that was taken is answered, also
	// while draining.
	written, read, idle := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		err := o.write(idle)
		cancel() // a writer that failed ends the stream
		written <- err
	}()
	go func() { // blocked in Recv it ends when this handler returns
		read <- o.read()
	}()
	// The client has ended the stream or broken it, or Shutdown has begun.
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
	for _, a := range o.ready { // answered after the writer had failed
		o.conn.memory.give(a.held)
	}
	return err
}

// read hands operations to workers. While all are busy, or there is no memory for one
// more operation, it does not read on: flow control holds the client back. A panic and a
// certificate that was revoked are its only errors, for a client that has gone or ended is
// nobody to tell.
func (o *operations) read() (failed error) {
	// Nothing below panics while it has memory that no task holds.
	defer recovered(o.s.cfg.Logger, pb.Percolator_Operations_FullMethodName, &failed)
	for {
		batch, err := o.stream.Recv()
		if err != nil {
			return nil
		}
		if err := o.who.stillSound(o.ctx, &o.s.cfg); err != nil {
			return err
		}
		for _, op := range batch.Operations {
			// There is nothing to do, and no answer could say so better than none.
			if op.GetRequest() == nil {
				continue
			}
			room := o.firstRoom(op.Request)
			n := operationMemory + int64(proto.Size(op.Request)) + room
			t := task{op, min(n, o.conn.memory.most), room}
			if o.conn.memory.take(o.taking, t.held) != nil {
				return nil
			}
			if !o.hand(t) {
				o.conn.memory.give(t.held)
				return nil
			}
		}
	}
}

// hand gives the operation to an idle worker, or to a new one. It returns false when no
// more work is taken.
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

// worker does operations one after another until no more work is taken.
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

// answer queues an answer for the writer, which takes all that are ready at once.
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

// write sends answers until idle is closed and none is left, or sending fails.
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

// writeAll sends answers in as few messages as they fit into and gives back what their
// operations held, also of those that could not be sent. It returns the first error.
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
		o.conn.memory.give(held)
	}
	return err
}

// writeQuota is how many bytes of a stream gRPC buffers beyond what it has written.
const writeQuota = 64 << 10

// send sends a message and returns when gRPC has written all of it but writeQuota. A
// client that takes longer than WriteTimeout to read it loses its connection: nothing
// less frees what gRPC holds for it. A panic is an error, so that writeAll gives back what
// the answers held.
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
	// This one is taken when the one before has been written.
	return o.stream.Send(&pb.OperationResults{})
}
