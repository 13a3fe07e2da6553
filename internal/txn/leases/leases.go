// Package leases holds history for the open snapshots of a process.
package leases

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn/request"
)

const (
	// firstLeaseAge is the age of a snapshot at which the first lease is requested. Meta's
	// answer contains the retention of history; from then on a quarter of that is used.
	firstLeaseAge = 250 * time.Millisecond
	// leaseRetry is the pause after a failed request. leaseEnd is the timeout of the request that
	// releases the lease.
	leaseRetry = time.Second
	leaseEnd   = time.Second
)

// Leases holds history for the process's open snapshots (design section 4, "Bounded history"):
// one lease, at the oldest snapshot, acquired and renewed only while that snapshot is older
// than a quarter of the retention. A short-lived snapshot only locks an uncontended mutex twice.
// Transactions are not tracked: reads of one that outlives the history fail.
//
// The lease is advisory. It expires after its client has died, and the cluster limits how long
// a client can hold history.
type Leases struct {
	transport request.Transport
	ttl       time.Duration // of a lease after its client has died
	logger    *slog.Logger
	oracle    *request.Oracle
	Asked     atomic.Uint64 // requests sent

	holder string // shown to operators
	token  []byte // required to end the lease
	mu     sync.Mutex
	open   map[mvcc.Timestamp]int // open snapshots by timestamp
	wake   chan struct{}          // capacity 1
	asleep atomic.Bool            // the loop waits for wake because no snapshot was open

	// Owned by the loop.
	after   time.Duration  // the age at which a snapshot needs a lease
	held    mvcc.Timestamp // 0: nothing
	renewAt time.Time
}

// New returns the leases of the worker's process, each with the lifetime ttl. Run keeps them.
func New(transport request.Transport, oracle *request.Oracle, worker mvcc.Worker, ttl time.Duration,
	logger *slog.Logger) *Leases {
	l := &Leases{
		transport: transport, oracle: oracle, ttl: ttl, logger: logger, wake: make(chan struct{}, 1),
		open: make(map[mvcc.Timestamp]int), after: firstLeaseAge,
		holder: fmt.Sprintf("client %016x", rand.Uint64()), token: []byte(cryptorand.Text()),
	}
	if worker.Node != 0 {
		l.holder = fmt.Sprintf("node %d, start %d, %s", worker.Node, worker.Incarnation, l.holder)
	}
	l.asleep.Store(true)
	return l
}

// Add registers an open snapshot. old wakes the loop at once, since the snapshot may need a
// lease already.
func (l *Leases) Add(ts mvcc.Timestamp, old bool) {
	l.mu.Lock()
	l.open[ts]++
	l.mu.Unlock()
	if old || (l.asleep.Load() && l.asleep.CompareAndSwap(true, false)) {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Remove unregisters a closed snapshot.
func (l *Leases) Remove(ts mvcc.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[ts]--; l.open[ts] <= 0 {
		delete(l.open, ts)
	}
}

// oldest returns the oldest open snapshot at or above bound, or 0. It unregisters those below:
// their reads already fail, and the program may have failed to close them.
func (l *Leases) oldest(bound mvcc.Timestamp) (oldest mvcc.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ts := range l.open {
		if ts < bound {
			delete(l.open, ts)
		} else if oldest == 0 || ts < oldest {
			oldest = ts
		}
	}
	return oldest
}

// Run keeps the lease until ctx, the client's, ends.
func (l *Leases) Run(ctx context.Context) {
	defer l.release(context.WithoutCancel(ctx))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Stop()
		if pause := l.look(ctx); pause > 0 {
			timer.Reset(pause)
		}
	}
}

// look acquires, renews or releases the lease and returns the delay until the next call; 0 means
// the next opened snapshot triggers it.
func (l *Leases) look(ctx context.Context) time.Duration {
	oldest := l.oldest(0)
	if oldest == 0 {
		l.release(ctx)
		l.asleep.Store(true)
		if oldest = l.oldest(0); oldest == 0 {
			return 0
		}
		l.asleep.Store(false)
	}
	age := time.Duration(l.oracle.Estimate().Millis()-oldest.Millis()) * time.Millisecond
	if age < l.after {
		l.release(ctx)
		return l.after - age
	}
	// A snapshot older than the lease can't wait for the renewal.
	if due := time.Until(l.renewAt); l.held != 0 && oldest >= l.held && due > 0 {
		return min(due, max(l.after, time.Millisecond))
	}
	return l.hold(ctx, oldest)
}

// hold acquires or renews the lease and returns the delay until the next look.
func (l *Leases) hold(ctx context.Context, oldest mvcc.Timestamp) time.Duration {
	asked, cancel := context.WithTimeout(ctx, l.ttl/3)
	defer cancel()
	l.Asked.Add(1)
	r, err := l.transport.HoldHistory(asked, &pb.HoldHistoryRequest{
		Holder: l.holder, Token: l.token, Oldest: uint64(oldest),
		TtlMs: uint32(l.ttl.Milliseconds()),
	})
	if err != nil {
		l.logger.Debug("percolator: history could not be held for an open snapshot", "error",
			err)
		return leaseRetry
	}
	if h := time.Duration(r.HistoryMs) * time.Millisecond; h > 0 {
		l.after = h / 4
	}
	l.oldest(mvcc.Timestamp(r.Bound))
	pause := max(time.Duration(r.TtlMs)*time.Millisecond/3, time.Millisecond)
	l.held, l.renewAt = oldest, time.Now().Add(pause)
	return min(pause, max(l.after, time.Millisecond)) // soon enough to release an unused lease
}

// release ends the lease if one is held.
func (l *Leases) release(ctx context.Context) {
	if l.held == 0 {
		return
	}
	l.held = 0
	ctx, cancel := context.WithTimeout(ctx, leaseEnd)
	defer cancel()
	// If the request fails, the lease expires by itself.
	_, _ = l.transport.HoldHistory(ctx, &pb.HoldHistoryRequest{Holder: l.holder, Token: l.token})
}
