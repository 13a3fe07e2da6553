package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// One run of a worker's observer: a session whose transaction the dispatcher has begun, and commits with the
// acknowledgment after Finish.

const (
	// runKept is the time by which the lease of a run's session exceeds the run's deadline, so that
	// the function of the run ends the session first.
	runKept = time.Minute
	// maxFailure is the maximum length of the message of a failed run, in bytes.
	maxFailure = 1 << 10
)

// run is what the session of an observer's run has in addition to the fields of other sessions.
type run struct {
	worker  *workerStream
	txn     *runTxn
	verdict chan error // capacity 1: what perform returns, from Finish
}

// perform sends a run to the worker, and returns once the worker has finished it. It is the function of all observers of
// the worker.
func (w *workerStream) perform(ctx context.Context, tx *percolator.Tx, name string, deadline time.Duration,
	changes []percolator.Notification) error {
	one := &session{
		who: w.who, lease: deadline + runKept, tx: tx, reader: tx,
		run: &run{worker: w, verdict: make(chan error, 1)},
	}
	if err := w.begin(one); err != nil {
		return err
	}
	defer w.end(one)
	m := &gw.Run{
		Session: one.id, Observer: name, StartTimestamp: uint64(tx.StartTS()),
		DeadlineMs: uint32(deadline.Milliseconds()),
	}
	for _, n := range changes {
		c := &gw.ObservedChange{CommitTimestamp: uint64(n.CommitTS), Attempt: uint32(n.Attempt)}
		if w.enc.text(n.Row) {
			c.RowAs = &gw.ObservedChange_Row{Row: n.Row}
		} else {
			c.RowAs = &gw.ObservedChange_RowBytes{RowBytes: []byte(n.Row)}
		}
		m.Changes = append(m.Changes, c)
	}
	select {
	case w.out <- &gw.ObserveResponse{Runs: []*gw.Run{m}}:
	case <-w.dead:
		return w.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-one.run.verdict:
		return err
	case <-w.dead:
		return w.reason()
	case <-ctx.Done():
		select { // if out is full, the worker is not told, and continues the run in vain
		case w.out <- &gw.ObserveResponse{Canceled: []string{one.id}}:
		default:
		}
		return ctx.Err()
	}
}

// begin adds the session of a run to those of the node and of the worker, unless the worker is
// dead.
func (w *workerStream) begin(one *session) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.run.txn = w.txns[one.tx]
	delete(w.txns, one.tx)
	if w.err != nil {
		return w.err
	}
	if err := w.s.sessions.begin(one); err != nil {
		return txn.Errorf("%w: %w", percolator.ErrUnavailable, err) // the node is stopping
	}
	w.runs[one] = true
	return nil
}

// end ends the session of a run.
func (w *workerStream) end(one *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, one)
	w.s.sessions.endRun(one)
}

// reason returns why the worker is dead.
func (w *workerStream) reason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// endRun ends the session of a run.
func (all *sessions) endRun(s *session) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(s)
}

// Finish implements the service Work.
func (s *service) Finish(ctx context.Context,
	r *connect.Request[gw.FinishRequest]) (*connect.Response[gw.FinishResponse], error) {
	e, err := editsOf(r.Msg)
	if err != nil {
		return nil, err
	}
	one, first, err := s.sessions.commit(callerIn(ctx), r.Msg.Session, true)
	if err != nil {
		return nil, err
	}
	if first {
		_ = one.run.worker.renew() // a failure shows in the result
		one.run.verdict <- s.verdict(one, r.Msg, &e)
	}
	t := one.run.txn
	select {
	case <-t.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return connect.NewResponse(&gw.FinishResponse{
		Committed: t.committed, CommitTimestamp: uint64(t.at),
	}), nil
}

// verdict buffers the writes of a finished run, and returns what its function returns.
func (s *service) verdict(one *session, req *gw.FinishRequest, e *edits) error {
	if req.Failed != nil {
		return errorOf(req.Failed)
	}
	if err := s.sessions.buffer(one, req, e); err != nil {
		return txn.Errorf("%w: %w", percolator.ErrUnavailable, err)
	}
	if len(req.FailedChanges) == 0 {
		return nil
	}
	partial := &percolator.PartialError{Failed: map[string]error{}}
	for _, f := range req.FailedChanges {
		partial.Failed[f.GetRow()+string(f.GetRowBytes())] = errorOf(f.GetFailure())
	}
	return partial
}

// errorOf returns the error that the failure stands for.
func errorOf(f *gw.RunFailure) error {
	message := f.GetMessage()
	if message = message[:min(len(message), maxFailure)]; message == "" {
		message = "the worker gave no reason"
	}
	switch f.GetKind() {
	case gw.RunFailure_KIND_RETRY_AFTER:
		return percolator.RetryAfter(errors.New(message), time.Duration(f.GetRetryAfterMs())*time.Millisecond)
	case gw.RunFailure_KIND_UNAVAILABLE:
		return txn.Errorf("%w: %s", percolator.ErrUnavailable, message)
	}
	return errors.New(message)
}

// runClient begins the transactions of a worker's runs.
type runClient struct {
	observer.Client
	w *workerStream
}

// Begin implements observer.Client.
func (c runClient) Begin(ctx context.Context, name string) (observer.Txn, error) {
	t, err := c.Client.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	return &runTxn{Txn: t, w: c.w, ended: make(chan struct{})}, nil
}

// runTxn is the transaction of a run. It remembers how it has ended.
type runTxn struct {
	observer.Txn
	w *workerStream
	// user is set by User, and is the key in w.txns until begin or end deletes it; w.mu guards it.
	user  *percolator.Tx
	once  sync.Once
	ended chan struct{}
	// Valid once ended is closed.
	committed bool
	at        mvcc.Timestamp
}

// User implements observer.Txn.
func (t *runTxn) User() *percolator.Tx {
	user := t.Txn.User()
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.txns[user], t.user = t, user
	return user
}

// Commit implements observer.Txn.
func (t *runTxn) Commit(ctx context.Context) (mvcc.Timestamp, error) {
	at, err := t.Txn.Commit(ctx)
	t.end(err == nil, at)
	return at, err
}

// Rollback implements observer.Txn.
func (t *runTxn) Rollback(ctx context.Context) error {
	t.end(false, 0)
	return t.Txn.Rollback(ctx)
}

// end records the result.
func (t *runTxn) end(committed bool, at mvcc.Timestamp) {
	t.once.Do(func() {
		t.committed, t.at = committed, at
		close(t.ended)
		t.w.mu.Lock()
		defer t.w.mu.Unlock()
		delete(t.w.txns, t.user)
	})
}
