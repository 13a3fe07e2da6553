package request

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

const (
	// timestampAttempt is the timeout of one request to the oracle.
	timestampAttempt = 2 * time.Second
	// maxTimestampBatch is the maximum number of timestamps in one request, maxTimestampQueue
	// that of waiting callers.
	maxTimestampBatch = 1 << 12
	maxTimestampQueue = 1 << 16
)

// Oracle requests timestamps from the cluster's oracle for all transactions of the process
// (§2.3): one request is pending at a time, and callers that arrive during it share the next
// one. One goroutine (Run) sends; callers wait in Get, unless an oracle in this process answers
// at once (Now).
//
// The sender is a separate goroutine, not the first caller: otherwise the end of that caller's
// context would fail all others.
type Oracle struct {
	transport Transport
	timeout   time.Duration // of the retries of a failed request, before its callers fail
	lockTTL   time.Duration
	traced    bool
	local     AtOnce        // nil: not supported by the transport
	wake      chan struct{} // capacity 1: the queue is not empty
	waits     sync.Pool     // of *timestampWait

	mu     sync.Mutex
	queue  []*timestampWait // callers that are not part of the current request, oldest first
	spare  []*timestampWait // the queue's other backing array
	seenAt time.Time        // when basis was seen
	closed atomic.Bool      // written under mu

	highest atomic.Uint64 // the greatest timestamp seen
	basis   atomic.Uint64 // the timestamp that estimate starts from; written under mu

	Received, Requests, Refused atomic.Uint64     // counters
	Waited                      metrics.Durations // excludes timestamps available at once
}

// NewOracle returns an oracle whose requests fail after being retried for the timeout. traced means
// that requests carry the spans of their callers.
func NewOracle(transport Transport, timeout, lockTTL time.Duration, traced bool) *Oracle {
	o := &Oracle{
		transport: transport, timeout: timeout, lockTTL: lockTTL, traced: traced,
		wake: make(chan struct{}, 1),
	}
	o.waits.New = func() any { return &timestampWait{answer: make(chan timestampAnswer, 1)} }
	o.local, _ = transport.(AtOnce)
	return o
}

// timestampWait is a waiting caller. Its channel buffers the one answer. The caller returns it
// to the pool only after the answer: a canceled caller leaves it to the sender.
type timestampWait struct {
	answer chan timestampAnswer
	trace  []byte // of its span; nil: not traced
}

type timestampAnswer struct {
	ts  mvcc.Timestamp
	err error
}

// Get returns a timestamp above all that this process had seen before the call.
func (o *Oracle) Get(ctx context.Context) (mvcc.Timestamp, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if ts, ok := o.Now(); ok {
		return ts, nil
	}
	// Every transaction calls Get, so waits are reused.
	w := o.waits.Get().(*timestampWait)
	w.trace = nil
	if o.traced {
		w.trace = tracing.Sent(ctx)
	}
	o.mu.Lock()
	if o.closed.Load() || len(o.queue) >= maxTimestampQueue {
		defer o.mu.Unlock()
		if o.closed.Load() {
			return 0, ErrClosed
		}
		return 0, &OverloadedError{
			RetryAfter: backoffMax, Message: "too many callers wait for timestamps",
		}
	}
	o.queue = append(o.queue, w)
	first := len(o.queue) == 1
	o.mu.Unlock()
	defer o.Waited.Since(time.Now())
	// Only the first caller must wake the sender.
	if first {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	select {
	case a := <-w.answer:
		o.waits.Put(w)
		return a.ts, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Now requests a timestamp from an oracle in this process. The request follows the call, as
// Get promises.
func (o *Oracle) Now() (mvcc.Timestamp, bool) {
	if o.local == nil || o.closed.Load() {
		return 0, false
	}
	floor := o.Seen()
	ts, ok := o.local.TimestampsNow(1)
	if !ok || o.Accept(ts, ts, floor) != nil { // Run retries and reports the error
		return 0, false
	}
	o.Requests.Add(1)
	return ts, true
}

// Run sends requests until ctx, the client's, ends.
func (o *Oracle) Run(ctx context.Context) {
	for {
		select {
		case <-o.wake:
			o.serve(ctx)
		case <-ctx.Done():
			o.stop()
			return
		}
	}
}

// serve sends requests, one at a time, until no caller waits.
func (o *Oracle) serve(ctx context.Context) {
	var p Retry // of consecutive failures
	for ctx.Err() == nil {
		batch := o.take()
		if len(batch) == 0 {
			return
		}
		first, n, err := o.ask(traced(ctx, batch), len(batch))
		if err == nil {
			// The callers in batch were waiting before this request was sent, so its answer is
			// valid for them however late it is. Later callers wait for the next request.
			n = min(n, len(batch))
			for i, w := range batch[:n] {
				w.answer <- timestampAnswer{ts: first + mvcc.Timestamp(i)}
			}
			o.putBack(batch, n)
			p = Retry{}
			continue
		}
		// Retry here, not in the callers: new callers join the next attempt, and the transport
		// drops a late answer with its context.
		if err = p.Again(ctx, o.timeout, AskLater, err); err != nil {
			for _, w := range batch {
				w.answer <- timestampAnswer{err: err}
			}
			o.putBack(batch, len(batch))
			p = Retry{}
			continue
		}
		o.putBack(batch, 0)
	}
}

// traced returns ctx with the span of one of the waits, if one is traced.
func traced(ctx context.Context, batch []*timestampWait) context.Context {
	for _, w := range batch {
		if w.trace != nil {
			return tracing.With(ctx, w.trace)
		}
	}
	return ctx
}

// take removes the oldest waits from the queue for one request.
func (o *Oracle) take() []*timestampWait {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil
	}
	// Two backing arrays alternate: one fills while the waits in the other are answered.
	batch := o.queue
	o.queue, o.spare = o.spare[:0], nil
	if len(batch) > maxTimestampBatch {
		o.queue = append(o.queue, batch[maxTimestampBatch:]...)
		batch = batch[:maxTimestampBatch]
	}
	return batch
}

// putBack returns batch[n:], which was not answered, to the front of the queue.
func (o *Oracle) putBack(batch []*timestampWait, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n < len(batch) {
		o.queue = append(append([]*timestampWait(nil), batch[n:]...), o.queue...)
		return
	}
	clear(batch) // the waits belong to their callers, or to the pool
	o.spare = batch[:0]
}

// ask sends one request and rejects timestamps that are not above all seen before it was sent.
// (Tablets obtain timestamps for first reads concurrently; these may be higher and arrive
// earlier.)
func (o *Oracle) ask(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	attempt, cancel := context.WithTimeout(ctx, timestampAttempt)
	defer cancel()
	o.Requests.Add(1)
	floor := o.Seen()
	first, n, err := o.transport.Timestamps(attempt, count)
	if err != nil {
		return 0, 0, Errorf("request timestamps: %w", err)
	}
	if n < 1 {
		return 0, 0, Errorf("%w: the oracle granted no timestamp", ErrUnavailable)
	}
	if err := o.Accept(first, first+mvcc.Timestamp(n-1), floor); err != nil {
		return 0, 0, err
	}
	return first, n, nil
}

// basisAge returns how much later than estimate's basis a timestamp must be to replace it.
// Otherwise each new timestamp would require reading the clock. Estimates set the expiry of locks,
// for which a sixteenth of LockTTL is accurate enough.
func (o *Oracle) basisAge() time.Duration { return min(time.Second, o.lockTTL/16) }

// Accept records the timestamps first to last. It rejects them if they are not above floor,
// the greatest seen when they were requested.
func (o *Oracle) Accept(first, last, floor mvcc.Timestamp) error {
	// Only a fault of the cluster, such as two concurrent oracles, leads here. This process
	// never accepts a lower timestamp, so that at least its own transactions stay in order.
	if first <= floor {
		o.Refused.Add(1)
		return Errorf("%w: the oracle granted timestamp %d, not above %d, which it granted before",
			ErrUnavailable, first, floor)
	}
	o.Received.Add(uint64(last - first + 1))
	for {
		seen := o.highest.Load()
		if uint64(last) <= seen || o.highest.CompareAndSwap(seen, uint64(last)) {
			break
		}
	}
	if last.Millis() >= mvcc.Timestamp(o.basis.Load()).Millis()+o.basisAge().Milliseconds() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.basis.Store(uint64(last))
		o.seenAt = time.Now()
	}
	return nil
}

// Estimate returns the oracle's approximate time: a recent timestamp advanced by this
// machine's monotonic clock, or 0 if none has been seen. It need not be exact: it sets the expiry
// of locks but never decides whether one has expired.
func (o *Oracle) Estimate() mvcc.Timestamp {
	o.mu.Lock()
	defer o.mu.Unlock()
	basis := mvcc.Timestamp(o.basis.Load())
	if basis == 0 {
		return 0
	}
	return mvcc.TimestampAt(basis.Millis() + time.Since(o.seenAt).Milliseconds())
}

// Expiry returns the expiry of a new lock, LockTTL from now in oracle time. It counts from the
// creation of the message, not from the start timestamp: after a long read phase locks would
// expire at once (design section 4, "A missing primary is not a rollback").
func (o *Oracle) Expiry() mvcc.Timestamp {
	return mvcc.TimestampAt(o.Estimate().Millis() + o.lockTTL.Milliseconds())
}

// Seen returns the greatest timestamp seen.
func (o *Oracle) Seen() mvcc.Timestamp { return mvcc.Timestamp(o.highest.Load()) }

// stop fails the queued callers, and all later ones, with ErrClosed.
func (o *Oracle) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed.Store(true)
	for _, w := range o.queue {
		w.answer <- timestampAnswer{err: ErrClosed}
	}
	o.queue = nil
}

// GivenOut returns ErrInvalid if the timestamp is 0 or not allocated yet. It queries the
// Oracle only about timestamps above all that this process has seen.
func (o *Oracle) GivenOut(ctx context.Context, ts mvcc.Timestamp) error {
	if ts == 0 {
		return Invalid("timestamp 0")
	}
	if ts <= o.Seen() {
		return nil
	}
	now, err := o.Get(ctx)
	if err == nil && ts > now {
		err = Invalid("timestamp %d is in the future: the oracle is at %d", ts, now)
	}
	return err
}
