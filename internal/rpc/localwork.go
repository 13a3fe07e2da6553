package rpc

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
)

// Sessions of workers in the node's own process, for the gateway. The node's part that hosts observers sees
// no difference, and the checks of the caller are those of Work by the same code.

// LocalWorker is a Local whose operations are a worker's, as far as the caller's role allows, with sessions
// of workers. Locks of its transactions are those of the node's process, whose death others notice.
type LocalWorker struct {
	*Local
	life        context.Context
	cluster     string
	incarnation uint64
}

// LocalWorker returns a LocalWorker that acts as who. life ends with the worker, and has the values of
// who's request: its sessions have that request's remote address. cluster is the id of the node's
// cluster.
func (s *Server) LocalWorker(life context.Context, who Caller, cluster string) *LocalWorker {
	l := &LocalWorker{Local: s.Local(who), life: life, cluster: cluster, incarnation: rand.Uint64() | 1}
	l.performer.who.works = who.Role.Includes(certs.Observer)
	l.works, l.worker = true, s.service.transport.Worker()
	return l
}

// Cluster returns the id of the node's cluster.
func (l *LocalWorker) Cluster() string { return l.cluster }

// Incarnation identifies the worker.
func (l *LocalWorker) Incarnation() uint64 { return l.incarnation }

// Addresses returns one, that of the node's process.
func (l *LocalWorker) Addresses() []string { return []string{"local"} }

// OpenWork opens a session with this node. The caller closes it; its goroutine then ends.
func (l *LocalWorker) OpenWork(ctx context.Context, _ string) (*WorkSession, error) {
	ctx, cancel := context.WithCancel(ctx)
	dead := context.AfterFunc(l.life, cancel)
	if from, ok := peer.FromContext(l.life); ok {
		ctx = peer.NewContext(ctx, from)
	}
	p := &workPipe{
		ctx: ctx, requests: make(chan *pb.WorkRequest), responses: make(chan *pb.WorkResponse),
		left: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() { // joined by end
		defer close(p.ended)
		defer recovered(l.s.cfg.Logger, pb.Percolator_Work_FullMethodName, &p.err)
		_, p.err = l.s.guard.Call(ctx, l.performer.who, pb.Percolator_Work_FullMethodName, nil, func() (any, error) {
			return nil, l.s.work(ctx, l.performer.who, nodeEnd{p})
		})
	}()
	return &WorkSession{workerEnd{p}, func() error {
		cancel()
		dead()
		<-p.ended
		return nil
	}}, nil
}

// workPipe is a session within the process. Each end is used like a gRPC stream.
type workPipe struct {
	ctx       context.Context // ends when the worker ends, or closes the session
	requests  chan *pb.WorkRequest
	responses chan *pb.WorkResponse
	left      chan struct{} // closed when the worker sends nothing more
	ended     chan struct{} // closed when the node has ended the session
	err       error         // why the node has ended the session; valid once ended is closed
}

type nodeEnd struct{ *workPipe }

// Send implements WorkStream.
func (p nodeEnd) Send(m *pb.WorkResponse) error {
	select {
	case p.responses <- m:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-p.ended: // the handler has returned
		return io.ErrClosedPipe
	}
}

// Recv implements WorkStream.
func (p nodeEnd) Recv() (*pb.WorkRequest, error) {
	select {
	case m := <-p.requests:
		return m, nil
	case <-p.left:
		return nil, io.EOF
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	case <-p.ended:
		return nil, io.ErrClosedPipe
	}
}

type workerEnd struct{ *workPipe }

// Send sends a message to the node.
func (p workerEnd) Send(m *pb.WorkRequest) error {
	select {
	case p.requests <- m:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-p.ended:
		return io.EOF // as gRPC: Recv has the reason
	}
}

// Recv waits for the next message of the node.
func (p workerEnd) Recv() (*pb.WorkResponse, error) {
	select {
	case m := <-p.responses:
		return m, nil
	case <-p.ended:
		if p.err == nil {
			return nil, io.EOF
		}
		if _, own := status.FromError(p.err); own {
			return nil, p.err
		}
		return nil, toStatus(p.err)
	}
}

// CloseSend ends what the worker sends.
func (p workerEnd) CloseSend() error {
	select {
	case <-p.left:
		return errors.New("rpc: the worker has already left")
	default:
		close(p.left)
		return nil
	}
}
