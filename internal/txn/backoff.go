package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// backoff is a jittered exponential wait. The zero value with base and max set is ready.
type backoff struct {
	base, max time.Duration
	n         int
}

// next is how long to wait now: at least half of, at most all of base·2ⁿ, up to max.
func (b *backoff) next() time.Duration {
	d := b.max
	if b.n < 30 && b.base<<b.n < b.max {
		d = b.base << b.n
	}
	b.n++
	return jitter(d)
}

// jitter spreads waits that began together, so that those who collided once do not collide again.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Sleep waits for d or the end of ctx, whose error it returns.
func Sleep(ctx context.Context, d time.Duration) error {
	// time.After would keep its timer until it fires, long after most waits have been cut short.
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

// patience bounds the attempts of one operation that nobody serves: by its context and
// OperationTimeout. The zero value is ready.
type patience struct {
	wait  backoff
	since time.Time // when the first attempt failed; zero: none has
}

// again waits before another attempt; last is why the one before failed. The error, if
// any, wraps last.
func (p *patience) again(ctx context.Context, cfg *Config, v verdict, last error) error {
	// Most operations succeed at once, so the clock is read only when one has failed.
	if p.since.IsZero() {
		p.since = time.Now()
		p.wait = backoff{base: cfg.BackoffBase, max: cfg.BackoffMax}
		if v == wrongTablet && ctx.Err() == nil {
			return nil // the map has just been healed: the next attempt knows better
		}
	}
	// A caller without a deadline must not hang for ever on a tablet that nobody serves.
	if time.Since(p.since) > cfg.OperationTimeout {
		return fmt.Errorf("%w: gave up after %v: %w", ErrUnavailable, cfg.OperationTimeout, last)
	}
	if err := Sleep(ctx, p.wait.next()); err != nil {
		return fmt.Errorf("%w (last attempt: %w)", err, last)
	}
	return nil
}
