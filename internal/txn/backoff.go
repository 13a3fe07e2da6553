package txn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// backoff doubles a wait from base up to max, with jitter. It is ready once base and max are
// set.
type backoff struct {
	base, max time.Duration
	n         int
}

// next returns the next wait: between half of base·2ⁿ and all of it, at most max.
func (b *backoff) next() time.Duration {
	d := b.max
	if b.n < 30 && b.base<<b.n < b.max {
		d = b.base << b.n
	}
	b.n++
	return jitter(d)
}

// jitter returns a random duration between d/2 and d, so that transactions that have
// collided do not meet again after the same wait.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Sleep waits for d or the end of ctx, whose error it returns.
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

// patience paces the attempts at one operation and ends them with its context or after
// Config.OperationTimeout. The zero value is ready.
type patience struct {
	wait  backoff
	since time.Time // when the first attempt failed; zero: none has
}

// again waits before the next attempt. last is why the previous one failed. An error,
// which wraps last, means that there is to be no other attempt.
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
