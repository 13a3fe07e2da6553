package txn

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

const (

	// firstLeaseAge is how old a snapshot gets before meta is asked for the first time;
	// its answer says how long history is kept, and from then on a quarter of that
	// counts.
	firstLeaseAge = 250 * time.Millisecond
	// leaseRetry is the pause after a request that failed, leaseEnd how long giving back
	// may hold up Close.
	leaseRetry = time.Second
	leaseEnd   = time.Second
)

// leases holds history for the process's open snapshots (invariant 11 of design section
// 4): one lease, at the oldest, taken and renewed only while that one is older than a
// quarter of the history. Who opens a snapshot and closes it soon pays two uncontended
// locks. Transactions are not tracked: one that is longer than the history is told so by
// its reads.
//
// It is advisory. A client that dies loses its lease when that ends, and one that is
// never closed holds history no longer than the cluster lets it.
type leases struct {
	transport Transport
	cfg       *Config
	oracle    *oracle
	asked     atomic.Uint64 // a counter of requests

	holder string // as operators see it
	token  []byte // without which nobody ends the lease
	mu     sync.Mutex
	open   map[mvcc.Timestamp]int // how many snapshots are open, by timestamp
	wake   chan struct{}          // capacity 1
	asleep atomic.Bool            // the loop waits for wake, for nothing was open when it looked

	// The loop's own.
	after   time.Duration  // the age at which a snapshot needs a lease
	held    mvcc.Timestamp // 0: nothing
	renewAt time.Time
}

func newLeases(transport Transport, cfg *Config, oracle *oracle, worker mvcc.Worker) *leases {
	l := &leases{
		transport: transport, cfg: cfg, oracle: oracle, wake: make(chan struct{}, 1),
		open: make(map[mvcc.Timestamp]int), after: firstLeaseAge,
		holder: fmt.Sprintf("client %016x", rand.Uint64()), token: []byte(cryptorand.Text()),
	}
	if worker.Node != 0 {
		l.holder = fmt.Sprintf("node %d, start %d, %s", worker.Node, worker.Incarnation, l.holder)
	}
	l.asleep.Store(true)
	return l
}

// add registers an open snapshot. An old one, of the past, wants its lease at once.
func (l *leases) add(ts mvcc.Timestamp, old bool) {
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

// remove forgets a snapshot that is closed.
func (l *leases) remove(ts mvcc.Timestamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[ts]--; l.open[ts] <= 0 {
		delete(l.open, ts)
	}
}

// oldest is the oldest open snapshot at or above bound; 0 if none is open. Those below
// are forgotten: their reads are refused already, and somebody may have forgotten to
// close them.
func (l *leases) oldest(bound mvcc.Timestamp) (oldest mvcc.Timestamp) {
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

// run keeps the lease until ctx, the client's, ends.
func (l *leases) run(ctx context.Context) {
	defer l.giveBack(context.WithoutCancel(ctx))
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

// look does what the open snapshots call for and says when to look again; 0: when one is opened.
func (l *leases) look(ctx context.Context) time.Duration {
	oldest := l.oldest(0)
	if oldest == 0 {
		l.giveBack(ctx)
		l.asleep.Store(true)
		if oldest = l.oldest(0); oldest == 0 {
			return 0
		}
		l.asleep.Store(false)
	}
	age := time.Duration(l.oracle.estimate().Millis()-oldest.Millis()) * time.Millisecond
	if age < l.after {
		l.giveBack(ctx)
		return l.after - age
	}
	// A snapshot of the past, older than what is held, can't wait until the lease is renewed.
	if due := time.Until(l.renewAt); l.held != 0 && oldest >= l.held && due > 0 {
		return min(due, max(l.after, time.Millisecond))
	}
	return l.hold(ctx, oldest)
}

// hold takes or renews the lease and says when to look again.
func (l *leases) hold(ctx context.Context, oldest mvcc.Timestamp) time.Duration {
	asked, cancel := context.WithTimeout(ctx, l.cfg.LeaseTTL/3)
	defer cancel()
	l.asked.Add(1)
	r, err := l.transport.HoldHistory(asked, &pb.HoldHistoryRequest{
		Holder: l.holder, Token: l.token, Oldest: uint64(oldest),
		TtlMs: uint32(l.cfg.LeaseTTL.Milliseconds()),
	})
	if err != nil {
		l.cfg.Logger.Debug("percolator: history could not be held for an open snapshot", "error",
			err)
		return leaseRetry
	}
	if h := time.Duration(r.HistoryMs) * time.Millisecond; h > 0 {
		l.after = h / 4
	}
	l.oldest(mvcc.Timestamp(r.Bound))
	pause := max(time.Duration(r.TtlMs)*time.Millisecond/3, time.Millisecond)
	l.held, l.renewAt = oldest, time.Now().Add(pause)
	return min(pause, max(l.after, time.Millisecond)) // soon enough to give it back
}

// giveBack ends the lease if there is one.
func (l *leases) giveBack(ctx context.Context) {
	if l.held == 0 {
		return
	}
	l.held = 0
	ctx, cancel := context.WithTimeout(ctx, leaseEnd)
	defer cancel()
	// If it fails the lease ends by itself.
	_, _ = l.transport.HoldHistory(ctx, &pb.HoldHistoryRequest{Holder: l.holder, Token: l.token})
}
