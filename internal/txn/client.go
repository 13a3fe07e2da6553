package txn

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn/background"
	"github.com/percolator-go/percolator/internal/txn/counters"
	"github.com/percolator-go/percolator/internal/txn/leases"
	"github.com/percolator-go/percolator/internal/txn/pending"
	"github.com/percolator-go/percolator/internal/txn/request"
	"github.com/percolator-go/percolator/internal/txn/spares"
	"github.com/percolator-go/percolator/internal/wire"
)

// Types of other packages that Client embeds: their methods are methods of a Client.
type (
	meta      = request.Meta
	observers = pending.Observers
)

// Client coordinates transactions of one process over a Transport. All its methods may be
// used concurrently.
//
// It consists of parts (see the package comment); embedded parts export methods of the client.
// Transactions run on their callers' goroutines, as in the paper (§2.5); work runs the rest.
type Client struct {
	transport Transport
	cfg       Config
	worker    mvcc.Worker // this process's identity in its locks
	work      *background.Group

	oracle     *request.Oracle // timestamps
	router     *request.Router // operations, to the tablets that hold their cells
	*meta                      // tables and other requests to meta
	*resolver                  // conflicting locks, and commits whose reply was lost
	*observers                 // notifications pending for observers
	beats      *heartbeats
	leases     *leases.Leases

	async   asyncGate
	spares  spares.Spares
	weak    weakColumns
	learned prefetcher
	stats   counters.Counters
	warned  atomic.Int64 // last warning of a late write, Unix seconds
}

// NewClient returns a client over the transport and takes ownership of it. The client must be
// closed.
func NewClient(transport Transport, cfg Config) *Client {
	c := &Client{transport: transport, cfg: cfg.withDefaults(), worker: transport.Worker()}
	c.async.known = cfg.AsyncCommits
	c.learned.patterns = make(map[patternKey]pattern)
	c.work = background.New(c.cfg.OperationTimeout)
	c.oracle = request.NewOracle(transport, c.cfg.OperationTimeout, c.cfg.LockTTL, c.cfg.Tracer != nil)
	c.meta = request.NewMeta(transport, c.cfg.Limits.Row, c.cfg.OperationTimeout, c.work)
	c.router = request.NewRouter(transport, c.cfg.Limits, c.cfg.OperationTimeout, c.meta)
	c.resolver = newResolver(&c.cfg, transport, c.router, c.oracle, c.work)
	c.observers = pending.New(transport, c.cfg.OperationTimeout, c.meta, c.router, c.oracle)
	c.beats = &heartbeats{
		router: c.router, oracle: c.oracle, work: c.work, every: c.cfg.LockTTL / 3,
	}
	c.beats.runs = make(map[*heartbeat]struct{})
	c.leases = leases.New(transport, c.oracle, c.worker, c.cfg.LeaseTTL, c.cfg.Logger)
	c.work.Loop(c.oracle.Run)
	c.work.Loop(c.beats.run)
	c.work.Loop(c.leases.Run)
	return c
}

// Close waits for background commits and rollbacks, ends the client's goroutines and closes
// the transport. Later calls that need the cluster fail, most of them with ErrClosed; a second
// Close does nothing.
func (c *Client) Close() error {
	if !c.work.Close() {
		return nil
	}
	return c.transport.Close()
}

// Flush waits for the background work begun so far, at most OperationTimeout.
func (c *Client) Flush() { c.work.Flush() }

// Finish is Flush before a Close. When ctx ends, it cancels running and later background work
// and stops the client's loops: only Close may follow. Other clients resolve the locks left behind.
func (c *Client) Finish(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.work.Cancel)
	defer stop()
	c.work.Flush()
}

// Transport returns the client's transport.
func (c *Client) Transport() Transport { return c.transport }

// Admin returns a client of the Admin service over the same transport. A refusal is a
// *ServerError.
func (c *Client) Admin() pb.AdminClient { return pb.NewAdminClient(c.transport.AdminConn()) }

// Timestamp returns a fresh timestamp of the oracle.
func (c *Client) Timestamp(ctx context.Context) (mvcc.Timestamp, error) {
	if c.work.Closed() {
		return 0, ErrClosed
	}
	return c.oracle.Get(ctx)
}

// OracleTime estimates the oracle's time, which may be ahead of this machine's clock. It
// returns this machine's time until the client has seen a timestamp.
func (c *Client) OracleTime() time.Time {
	if at := c.oracle.Estimate(); at != 0 {
		return time.UnixMilli(at.Millis())
	}
	return time.Now()
}

// Send sends one idempotent operation to the tablet that holds the position, for scanners and
// tools. It returns the response and the tablet. An Error in the response becomes an error of
// this package.
func (c *Client) Send(ctx context.Context, p wire.Position,
	req *pb.TabletRequest) (*pb.TabletResponse, *pb.TabletDescriptor, error) {
	return c.router.Call(ctx, p, request.Fresh(req), false)
}

// WalkColumn is WalkFrom at the first row.
func (c *Client) WalkColumn(ctx context.Context, group mvcc.Group,
	column mvcc.ObservedColumn) iter.Seq2[*pb.WalkEntry, error] {
	return c.router.WalkFrom(ctx, group, column, "")
}

// WalkFrom is request.Router's method.
func (c *Client) WalkFrom(ctx context.Context, group mvcc.Group, column mvcc.ObservedColumn,
	row string) iter.Seq2[*pb.WalkEntry, error] {
	return c.router.WalkFrom(ctx, group, column, row)
}

// ClearNotifies clears the cells' notify entries as mvcc.ClearNotify does, with one message per
// tablet if they fit. The argument as is the request without its cell. It is idempotent. It returns
// ErrInvalid while the cluster's version lacks version.Batches.
func (c *Client) ClearNotifies(ctx context.Context, cells []mvcc.Cell,
	as mvcc.ClearNotifyRequest) error {
	return c.router.EachTablet(ctx, cells, nil, func(cells, _ []mvcc.Cell) *pb.TabletRequest {
		return &pb.TabletRequest{Op: &pb.TabletRequest_ClearNotify{ClearNotify: &pb.ClearNotifyRequest{
			Cells: wire.CellsPB(cells), UpTo: uint64(as.UpTo), Origin: uint64(as.Origin),
			Ended: uint64(as.Ended), Observer: as.Observer,
		}}}
	}, nil)
}

// TabletOf is request.Router's method.
func (c *Client) TabletOf(cell mvcc.Cell) uint64 { return c.router.TabletOf(cell) }

// Begin starts a transaction whose snapshot includes all commits so far. After a conflict the
// caller must begin another one.
func (c *Client) Begin(ctx context.Context, o Options) (*Txn, error) {
	_, span := c.cfg.Tracer.Start(ctx, spanTransaction)
	asked := span.Child(spanOracle)
	ts, err := c.Timestamp(ctx)
	endSpan(asked, err)
	if err != nil {
		endSpan(span, err)
		return nil, err
	}
	t := c.newTxn(ctx, o)
	t.at, t.span, t.ownsSpan = ts, span, true
	return t, nil
}

// BeginLazy starts a transaction that obtains its start timestamp with its first read, in the
// same round trip if one tablet holds all cells read, or in Start, Scan or Commit if one of these
// comes first. The transaction is traced only after Txn.Trace.
func (c *Client) BeginLazy(ctx context.Context, o Options) (*Txn, error) {
	if c.work.Closed() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.newTxn(ctx, o), nil
}

func (c *Client) newTxn(ctx context.Context, o Options) *Txn {
	c.stats.Begun.Add(1)
	// One allocation holds the transaction and its reader, including space for one cell.
	t := &Txn{began: metrics.Now(), origin: originIn(ctx)}
	t.c, t.name, t.limit = c, o.Name, c.cfg.TransactionBytes
	if o.Bytes > 0 {
		t.limit = o.Bytes
	}
	if o.Effects {
		t.effects = &effectsLog{}
	}
	t.counted = c.stats.Named(o.Name)
	t.counted.Begin()
	return t
}

// Run calls fn with a transaction from BeginLazy and commits it. After a conflict, a live lock or
// an overload it runs fn again in a new transaction, until ctx ends or o.Runs runs have failed. It
// also runs fn again, but once only, if a table was dropped, since a new table may have its name.
// It returns the commit timestamp, or the start timestamp if fn wrote nothing.
func (c *Client) Run(ctx context.Context, o Options,
	fn func(context.Context, *Txn) error) (mvcc.Timestamp, error) {
	ctx, span := c.cfg.Tracer.Start(ctx, spanTransaction)
	ts, err := c.runAgain(ctx, o, span, fn)
	endSpan(span, err)
	return ts, err
}

// runAgain is the retry loop of Run.
func (c *Client) runAgain(ctx context.Context, o Options, span *tracing.Span,
	fn func(context.Context, *Txn) error) (mvcc.Timestamp, error) {
	var wait request.Backoff
	renamed := false // a table's name was looked up again
	for runs := 1; ; runs++ {
		ts, again, err := c.runOnce(ctx, o, span, fn)
		if !again {
			return ts, err
		}
		if errors.Is(err, request.ErrTableGone) { // dropped and created again since the name was looked up?
			if renamed {
				return 0, err
			}
			renamed = true
			runs-- // a dropped table does not count towards o.Runs
		} else if runs == o.Runs {
			return 0, &RetryError{Retries: runs - 1, Err: err}
		}
		// fn runs again with a new start timestamp and reads again: its buffered writes came
		// from its earlier reads (design section 4, "A retry runs the user's code again").
		c.stats.Retries.Add(1)
		d := wait.Next()
		if hint, ok := errors.AsType[*OverloadedError](err); ok {
			d = max(d, request.Jitter(2*hint.RetryAfter))
		}
		if late := Sleep(ctx, d); late != nil {
			return 0, Errorf("wait before the next attempt: %w; the last one failed: %w", late, err)
		}
	}
}

// runOnce runs fn once and commits. again reports that the transaction did not commit and
// should run again. An error of fn itself is never retried, even if it wraps ErrConflict: it
// may come from another transaction.
func (c *Client) runOnce(
	ctx context.Context, o Options, span *tracing.Span, fn func(context.Context, *Txn) error,
) (ts mvcc.Timestamp, again bool, err error) {
	t, err := c.BeginLazy(ctx, o)
	if err != nil {
		return 0, false, notCommitted(err)
	}
	t.span = span
	defer t.end() // also if fn panics
	if err := fn(ctx, t); err != nil {
		// A failed read decides whether to run again, regardless of fn's error.
		if failed := t.failure(); retryable(failed) {
			t.record(counters.Undecided, outcomeOf(failed))
			return 0, true, notCommitted(failed)
		}
		t.record(counters.Undecided, counters.Abandoned)
		return 0, false, err
	}
	ts, err = t.Commit(ctx)
	return ts, retryable(err), err
}

// retryable reports whether a transaction that failed with err did not commit and should run
// again.
func retryable(err error) bool {
	if err == nil || errors.Is(err, ErrCommitUnknown) {
		return false
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked) ||
		errors.Is(err, ErrOverloaded) || errors.Is(err, request.ErrTableGone)
}

// Snapshot returns a snapshot of all commits so far.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	ts, err := c.Timestamp(ctx)
	if err != nil {
		return nil, err
	}
	return c.snapshot(ts, false), nil
}

// SnapshotAt returns a snapshot at ts. The oracle must already have allocated ts: the state
// below a future timestamp may still change.
func (c *Client) SnapshotAt(ctx context.Context, ts mvcc.Timestamp) (*Snapshot, error) {
	if c.work.Closed() {
		return nil, ErrClosed
	}
	if err := c.oracle.GivenOut(ctx, ts); err != nil {
		return nil, err
	}
	return c.snapshot(ts, true), nil
}

// snapshot opens a snapshot and registers it with leases until it is closed. past means that
// it may already be old.
func (c *Client) snapshot(ts mvcc.Timestamp, past bool) *Snapshot {
	s := &Snapshot{}
	s.c, s.at = c, ts
	c.leases.Add(ts, past)
	return s
}
