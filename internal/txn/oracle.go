package txn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
)

const (
	// timestampAttempt is how long one request to the oracle may take before the next is sent.
	timestampAttempt = 2 * time.Second
	// maxTimestampBatch is the most timestamps in one request, maxTimestampQueue the most
	// callers that wait.
	maxTimestampBatch = 1 << 12
	maxTimestampQueue = 1 << 16
)

// oracle asks the cluster's oracle for timestamps on behalf of all transactions of the
// process (§2.3): one request is pending at a time, and all that is asked for meanwhile
// shares the next one. One goroutine (run) sends; callers wait in get.
//
// A goroutine of its own sends, not the first caller: otherwise the end of that caller's
// context would fail all others.
type oracle struct {
	transport Transport
	cfg       *Config
	now       AtOnce        // nil: the transport cannot
	wake      chan struct{} // capacity 1: there is somebody in the queue
	waits     sync.Pool     // of *timestampWait

	mu     sync.Mutex
	queue  []*timestampWait // who asked since the last request was sent, oldest first
	spare  []*timestampWait // the queue's other backing array
	seenAt time.Time        // when basis was seen
	closed atomic.Bool      // written under mu

	highest atomic.Uint64 // the greatest timestamp seen
	basis   atomic.Uint64 // what estimate goes by; written under mu

	received, requests, refused atomic.Uint64     // counters
	waited                      metrics.Durations // of who was not answered at once
}

func newOracle(transport Transport, cfg *Config) *oracle {
	o := &oracle{transport: transport, cfg: cfg, wake: make(chan struct{}, 1)}
	o.waits.New = func() any { return &timestampWait{answer: make(chan timestampAnswer, 1)} }
	o.now, _ = transport.(AtOnce)
	return o
}

// timestampWait is a waiting caller. Its channel has room for the one answer. Only one
// that was answered goes back to the pool: a caller that gave up leaves it to the sender.
type timestampWait struct{ answer chan timestampAnswer }

type timestampAnswer struct {
	ts  mvcc.Timestamp
	err error
}

// get returns a timestamp above all that this process saw before the call.
func (o *oracle) get(ctx context.Context) (mvcc.Timestamp, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if ts, ok := o.atOnce(); ok {
		return ts, nil
	}
	// Every transaction comes through here, so waits are reused.
	w := o.waits.Get().(*timestampWait)
	o.mu.Lock()
	if o.closed.Load() || len(o.queue) >= maxTimestampQueue {
		defer o.mu.Unlock()
		if o.closed.Load() {
			return 0, ErrClosed
		}
		return 0, &OverloadedError{
			RetryAfter: backoffMax, Message: "too many wait for timestamps",
		}
	}
	o.queue = append(o.queue, w)
	first := len(o.queue) == 1
	o.mu.Unlock()
	defer o.waited.Since(time.Now())
	// Only the first has to wake the sender.
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

// atOnce asks the oracle in this process, if it is here. Its timestamp was requested
// after the call, as get promises.
func (o *oracle) atOnce() (mvcc.Timestamp, bool) {
	if o.now == nil || o.closed.Load() {
		return 0, false
	}
	floor := o.seen()
	ts, ok := o.now.TimestampsNow(1)
	if !ok || o.accept(ts, ts, floor) != nil { // run tries again, and says why it cannot
		return 0, false
	}
	o.requests.Add(1)
	return ts, true
}

// run sends requests until ctx, the client's, ends.
func (o *oracle) run(ctx context.Context) {
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

// serve sends requests, one at a time, until nobody waits.
func (o *oracle) serve(ctx context.Context) {
	var p retryPolicy // with the requests that failed in a row
	for ctx.Err() == nil {
		batch := o.take()
		if len(batch) == 0 {
			return
		}
		first, n, err := o.ask(ctx, len(batch))
		if err == nil {
			// The callers in batch asked before this request was sent, so its answer
			// serves them however late it is. Later callers wait for the next request
			// (invariant 6).
			n = min(n, len(batch))
			for i, w := range batch[:n] {
				w.answer <- timestampAnswer{ts: first + mvcc.Timestamp(i)}
			}
			o.putBack(batch, n)
			p = retryPolicy{}
			continue
		}
		// Retry here, not in the callers: new callers join the next attempt, and the
		// transport drops a late answer together with its context.
		if err = p.again(ctx, o.cfg, askLater, err); err != nil {
			for _, w := range batch {
				w.answer <- timestampAnswer{err: err}
			}
			o.putBack(batch, len(batch))
			p = retryPolicy{}
			continue
		}
		o.putBack(batch, 0)
	}
}

// take removes the oldest of the queue for one request.
func (o *oracle) take() []*timestampWait {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		return nil
	}
	// Two backing arrays alternate: one fills while the other is being answered.
	batch := o.queue
	o.queue, o.spare = o.spare[:0], nil
	if len(batch) > maxTimestampBatch {
		o.queue = append(o.queue, batch[maxTimestampBatch:]...)
		batch = batch[:maxTimestampBatch]
	}
	return batch
}

// putBack returns batch[n:], which was not answered, to the front of the queue.
func (o *oracle) putBack(batch []*timestampWait, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n < len(batch) {
		o.queue = append(append([]*timestampWait(nil), batch[n:]...), o.queue...)
		return
	}
	clear(batch) // the waits belong to their callers, or to the pool
	o.spare = batch[:0]
}

// ask sends one request and refuses timestamps that are not above all that were seen
// before it was sent. (Those that tablets take for first reads meanwhile may be higher,
// and arrive earlier.)
func (o *oracle) ask(ctx context.Context, count int) (mvcc.Timestamp, int, error) {
	attempt, cancel := context.WithTimeout(ctx, timestampAttempt)
	defer cancel()
	o.requests.Add(1)
	floor := o.seen()
	first, n, err := o.transport.Timestamps(attempt, count)
	if err != nil {
		return 0, 0, Errorf("oracle: %w", err)
	}
	if n < 1 {
		return 0, 0, Errorf("%w: the oracle gave no timestamp", ErrUnavailable)
	}
	if err := o.accept(first, first+mvcc.Timestamp(n-1), floor); err != nil {
		return 0, 0, err
	}
	return first, n, nil
}

// basisAge returns how much newer a timestamp must be to become the basis of estimate, so
// that the clock is not read for each. Estimates serve for the expiry of locks, and a
// sixteenth of their time to live is accurate enough.
func (c *Config) basisAge() time.Duration { return min(time.Second, c.LockTTL/16) }

// accept records the timestamps first to last. It refuses them if they are not above
// floor, the greatest that had been seen when they were requested.
func (o *oracle) accept(first, last, floor mvcc.Timestamp) error {
	// Only a fault of the cluster, such as two oracles at once, leads here. This process
	// never goes back behind what it has seen, so that at least its own transactions stay
	// in order.
	if first <= floor {
		o.refused.Add(1)
		return Errorf("%w: the oracle gave %d after %d", ErrUnavailable, first, floor)
	}
	o.received.Add(uint64(last - first + 1))
	for {
		seen := o.highest.Load()
		if uint64(last) <= seen || o.highest.CompareAndSwap(seen, uint64(last)) {
			break
		}
	}
	if last.Millis() >= mvcc.Timestamp(o.basis.Load()).Millis()+o.cfg.basisAge().Milliseconds() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.basis.Store(uint64(last))
		o.seenAt = time.Now()
	}
	return nil
}

// OracleTime estimates the oracle's time, which may be ahead of this machine's clock. It
// is this machine's until the client has seen a timestamp.
func (o *oracle) OracleTime() time.Time {
	if at := o.estimate(); at != 0 {
		return time.UnixMilli(at.Millis())
	}
	return time.Now()
}

// estimate returns about the oracle's time: a recent timestamp, advanced by this
// machine's monotonic clock. It need not be exact: it sets expiries, but decides nothing.
func (o *oracle) estimate() mvcc.Timestamp {
	o.mu.Lock()
	defer o.mu.Unlock()
	basis := mvcc.Timestamp(o.basis.Load())
	if basis == 0 {
		return 0
	}
	return mvcc.TimestampAt(basis.Millis() + time.Since(o.seenAt).Milliseconds())
}

// expiry returns the expiry of a new lock, LockTTL from now in oracle time. It counts
// from when the message is built, not from the start timestamp: after a long read phase
// locks would expire at once (invariant 6 of design section 4).
func (o *oracle) expiry() mvcc.Timestamp {
	return mvcc.TimestampAt(o.estimate().Millis() + o.cfg.LockTTL.Milliseconds())
}

// seen returns the greatest timestamp seen.
func (o *oracle) seen() mvcc.Timestamp { return mvcc.Timestamp(o.highest.Load()) }

// stop fails all callers with ErrClosed.
func (o *oracle) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed.Store(true)
	for _, w := range o.queue {
		w.answer <- timestampAnswer{err: ErrClosed}
	}
	o.queue = nil
}

// givenOut returns ErrInvalid if the timestamp is 0 or in the future. It asks only about
// timestamps above all that this process has seen.
func (o *oracle) givenOut(ctx context.Context, ts mvcc.Timestamp) error {
	if ts == 0 {
		return Invalid("timestamp 0")
	}
	if ts <= o.seen() {
		return nil
	}
	now, err := o.get(ctx)
	if err == nil && ts > now {
		err = Invalid("timestamp %d is in the future: the oracle is at %d", ts, now)
	}
	return err
}
