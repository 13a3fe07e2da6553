package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/worker"
)

// The service Work: observers in programs in any language. For each program the node has a
// dispatcher, as a worker in Go has in its own process (internal/worker). The functions of the
// observers send each run to the program, and return when the program finishes the run (run.go).

const (
	defaultConcurrency, maxConcurrency = 16, 256
	defaultWorkLease                   = time.Second
	minWorkLease, maxWorkLease         = 500 * time.Millisecond, time.Minute
	maxRunDeadline                     = 10 * time.Minute
	// maxObservers is the maximum number of observers of a worker, and of priorities of an observer.
	maxObservers = 256
	// workBeat is the longest pause between two messages to a worker.
	workBeat = 200 * time.Millisecond
	// drainAfter is the time that a retiring worker has to drain, in addition to the longest
	// deadline of its observers.
	drainAfter = 5 * time.Second
)

var (
	errWorkerLost  = txn.NewError("the worker of the run is gone: its stream or its lease has ended")
	errWorkerEnded = txn.Errorf("%w: the worker has no stream on this node: call Observe again", errSessionEnded)
)

// workerStream is a worker with its stream. The goroutine of Observe sends; functions of runs only queue.
type workerStream struct {
	s       *service
	who     *caller
	id      string
	enc     encoder
	longest time.Duration // of the deadlines of its observers
	lease   time.Duration
	expiry  *time.Timer
	out     chan *gw.ObserveResponse
	ready   chan struct{}
	retire  context.CancelFunc // begins the drain
	kill    context.CancelFunc // tells the node's session that the worker has died
	dead    chan struct{}

	mu   sync.Mutex
	err  error // why the worker is dead; nil: it is alive
	runs map[*session]bool
	txns map[*percolator.Tx]*runTxn // begun, and not handed to a function
}

// Observe implements the service Work.
func (s *service) Observe(ctx context.Context, r *connect.Request[gw.ObserveRequest],
	stream *connect.ServerStream[gw.ObserveResponse]) error {
	req := r.Msg
	concurrency := int(cmp.Or(req.Concurrency, defaultConcurrency))
	lease := cmp.Or(time.Duration(req.LeaseMs)*time.Millisecond, defaultWorkLease)
	switch {
	case concurrency > maxConcurrency:
		return txn.Invalid("concurrency is %d; at most %d are possible", concurrency, maxConcurrency)
	case lease < minWorkLease || lease > maxWorkLease:
		return txn.Invalid("a lease of %v; it must be between %v and %v", lease, minWorkLease, maxWorkLease)
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	draining, retire := context.WithCancel(life)
	w := &workerStream{
		s: s, who: callerIn(ctx), id: rand.Text(), enc: encoder{req.Encoding == gw.Encoding_ENCODING_BYTES},
		lease: lease, out: make(chan *gw.ObserveResponse, 2*concurrency), ready: make(chan struct{}),
		retire: retire, kill: kill, dead: make(chan struct{}),
		runs: map[*session]bool{}, txns: map[*percolator.Tx]*runTxn{},
	}
	registry, err := w.registry(req)
	if err != nil {
		kill()
		return err
	}
	w.expiry = time.AfterFunc(maxWorkLease, func() { w.die(errWorkerLost) }) // serve sets the lease
	defer w.expiry.Stop()
	defer s.workers.Delete(w.id)
	transport := s.cfg.Server.LocalWorker(life, ctx.Value(callerKey{}).(*call).who, s.cfg.ClusterID)
	ended := make(chan error, 1)
	go func() { // joined below
		ended <- worker.Run(draining, transport, registry, worker.Config{
			Workers: concurrency, Queue: observer.DefaultQueue, DrainTimeout: w.longest + drainAfter,
			Client: s.cfg.Client, Traces: tracing.NewBook(s.cfg.Client.Tracer), Alone: true,
			Runs:  func(c observer.Client) observer.Client { return runClient{c, w} },
			Ready: func() { close(w.ready) },
		})
	}()
	err = w.serve(ctx, stream, ended)
	if ctx.Err() != nil && s.life.Err() != nil {
		w.die(txn.Errorf("%w: the node is stopping", percolator.ErrUnavailable)) // not a failure of its runs
	}
	w.die(errWorkerLost)
	// Either serve has put the result of worker.Run back into ended, or worker.Run is about to
	// return, because the worker is dead.
	if last := <-ended; err == nil {
		err = last
	}
	return err
}

// serve sends runs until the worker has retired, dies, or ctx ends. If it receives the result of
// worker.Run from ended, it puts it back for its caller.
func (w *workerStream) serve(ctx context.Context, stream *connect.ServerStream[gw.ObserveResponse],
	ended chan error) error {
	beat := time.NewTicker(workBeat)
	defer beat.Stop()
	ready := w.ready
	for {
		m := &gw.ObserveResponse{}
		select {
		case m = <-w.out:
		case <-ready:
			ready = nil
			w.s.workers.Store(w.id, w)
			w.expiry.Reset(w.lease)
			m.Started = &gw.WorkerStarted{
				Worker: w.id, LeaseMs: uint32(w.lease.Milliseconds()), NodeId: w.s.cfg.NodeID,
			}
		case <-beat.C:
		case err := <-ended:
			ended <- err
			return err
		case <-w.dead:
			return errWorkerEnded
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more; {
			select {
			case next := <-w.out:
				m.Runs, m.Canceled = append(m.Runs, next.Runs...), append(m.Canceled, next.Canceled...)
			default:
				more = false
			}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

// die ends the worker, unless it is dead already. Of its runs only those that are being finished
// can still commit; the node hands the changes of the others to other processes.
func (w *workerStream) die(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	for one := range w.runs {
		w.s.sessions.endRun(one)
	}
	close(w.dead)
	w.kill() // before the runs' functions return: the worker has died, not left
}

// renew renews the lease.
func (w *workerStream) renew() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return errWorkerEnded
	}
	w.expiry.Reset(w.lease)
	return nil
}

// worker returns the caller's worker with the id.
func (s *service) worker(ctx context.Context, id string) (*workerStream, error) {
	if found, ok := s.workers.Load(id); ok {
		w := found.(*workerStream)
		if w.who.identity.Account() == callerIn(ctx).identity.Account() {
			return w, nil
		}
	}
	return nil, errWorkerEnded
}

// Renew implements the service Work.
func (s *service) Renew(ctx context.Context,
	r *connect.Request[gw.RenewRequest]) (*connect.Response[gw.RenewResponse], error) {
	w, err := s.worker(ctx, r.Msg.Worker)
	if err == nil {
		err = w.renew()
	}
	return connect.NewResponse(&gw.RenewResponse{}), err
}

// Retire implements the service Work.
func (s *service) Retire(ctx context.Context,
	r *connect.Request[gw.RetireRequest]) (*connect.Response[gw.RetireResponse], error) {
	w, err := s.worker(ctx, r.Msg.Worker)
	if err == nil {
		w.retire()
	}
	return connect.NewResponse(&gw.RetireResponse{}), err
}

// registry returns the observers and the tables of the request.
func (w *workerStream) registry(req *gw.ObserveRequest) (*percolator.Registry, error) {
	if n := len(req.Observers); n == 0 || n > maxObservers {
		return nil, txn.Invalid("%d observers; there must be between 1 and %d", n, maxObservers)
	}
	r := percolator.NewRegistry()
	for _, table := range req.Tables {
		spec, err := specOf(table)
		if err != nil {
			return nil, err
		}
		r.Table(spec)
	}
	for _, o := range req.Observers {
		if err := w.register(r, o); err != nil {
			return nil, err
		}
	}
	return r, r.Err()
}

// register registers one observer.
func (w *workerStream) register(r *percolator.Registry, o *gw.ObserverRegistration) error {
	if err := checkTable(o.Table); err != nil {
		return err
	}
	deadline := cmp.Or(time.Duration(o.DeadlineMs)*time.Millisecond, percolator.DefaultDeadline)
	switch {
	case deadline > maxRunDeadline:
		return txn.Invalid("observer %q: a deadline of %v; at most %v are possible", o.Name, deadline, maxRunDeadline)
	case len(o.Priorities) > maxObservers:
		return txn.Invalid("observer %q: %d priorities; at most %d are possible", o.Name, len(o.Priorities), maxObservers)
	}
	w.longest = max(w.longest, deadline)
	opts := []percolator.ObserverOption{
		percolator.Deadline(deadline), percolator.Debounce(time.Duration(o.DebounceMs) * time.Millisecond),
		percolator.Version(int(o.Version)),
	}
	if o.Concurrency != 0 {
		opts = append(opts, percolator.Concurrency(int(o.Concurrency)))
	}
	if o.MaxAttempts != 0 {
		opts = append(opts, percolator.MaxAttempts(int(o.MaxAttempts)))
	}
	if o.MaxConflicts != 0 {
		opts = append(opts, percolator.MaxConflicts(int(o.MaxConflicts)))
	}
	if len(o.Priorities) > 0 {
		opts = append(opts, percolator.Priority(priorityOf(o.Priorities)))
	}
	column := percolator.Column{Table: o.Table, Name: o.GetColumn() + string(o.GetColumnBytes())}
	many := func(ctx context.Context, tx *percolator.Tx, changes []percolator.Notification) error {
		return w.perform(ctx, tx, o.Name, deadline, changes)
	}
	one := func(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
		return many(ctx, tx, []percolator.Notification{n})
	}
	switch batch := percolator.Batch(int(o.Batch)); {
	case o.Batch > 1 && o.Weak:
		r.WeakBatch(o.Name, column, many, append(opts, batch)...)
	case o.Batch > 1:
		r.StrongBatch(o.Name, column, many, append(opts, batch)...)
	case o.Weak:
		r.Weak(o.Name, column, one, opts...)
	default:
		r.Strong(o.Name, column, one, opts...)
	}
	return nil
}

// priorityOf returns the priority of rows by their longest prefix in the list.
func priorityOf(all []*gw.RowPriority) func(percolator.Notification) int {
	return func(n percolator.Notification) int {
		priority, longest := 0, -1
		for _, p := range all {
			prefix := p.GetPrefix() + string(p.GetPrefixBytes())
			if len(prefix) > longest && strings.HasPrefix(n.Row, prefix) {
				priority, longest = int(p.Priority), len(prefix)
			}
		}
		return priority
	}
}
