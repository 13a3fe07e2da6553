package txn

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
)

// The waits between attempts double from backoffBase up to backoffMax.
const (
	backoffBase = time.Millisecond
	backoffMax  = 100 * time.Millisecond
)

// backoff is the number of waits so far.
type backoff int

// next returns the next wait, with jitter.
func (b *backoff) next() time.Duration {
	d := min(backoffBase<<min(*b, 30), backoffMax)
	*b++
	return jitter(d)
}

// jitter returns a random duration between d/2 and d, so that transactions that have collided
// do not collide again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Sleep waits for d. It returns ctx's error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryPolicy paces the attempts of one operation and stops them when its context ends or
// after Config.OperationTimeout. The zero value is ready to use.
type retryPolicy struct {
	wait  backoff
	since metrics.Moment // when the first attempt failed; 0: none failed
}

// again waits before the next attempt. last is the previous attempt's error. again returns an
// error, which wraps last, if the operation must not be tried again.
func (p *retryPolicy) again(ctx context.Context, cfg *Config, v verdict, last error) error {
	// Most operations succeed at once, so the clock is read only after a failure.
	if p.since == 0 {
		p.since = metrics.Now()
		if v == wrongTablet && ctx.Err() == nil {
			return nil // the map has just been corrected: retry at once
		}
	}
	// A caller without a deadline must not hang forever on an unavailable tablet.
	if p.since.Elapsed() > cfg.OperationTimeout {
		return Errorf("%w: gave up after %v: %w", ErrUnavailable, cfg.OperationTimeout, last)
	}
	if err := Sleep(ctx, p.wait.next()); err != nil {
		return Errorf("%w (last attempt: %w)", err, last)
	}
	return nil
}
