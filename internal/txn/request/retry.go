package request

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

// Backoff is the number of waits so far.
type Backoff int

// Next returns the next wait, with jitter.
func (b *Backoff) Next() time.Duration {
	d := min(backoffBase<<min(*b, 30), backoffMax)
	*b++
	return Jitter(d)
}

// Jitter returns a random duration between d/2 and d, so that transactions that have collided
// do not collide again.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

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

// Retry paces the attempts of one operation and stops them when its context ends or
// after a timeout. The zero value is ready to use.
type Retry struct {
	wait  Backoff
	since metrics.Moment // when the first attempt failed; 0: none failed
}

// Again waits before the next attempt. last is the previous attempt's error. Again returns an
// error, which wraps last, if the operation must not be tried again.
func (p *Retry) Again(ctx context.Context, timeout time.Duration, v Verdict, last error) error {
	// Most operations succeed at once, so the clock is read only after a failure.
	if p.since == 0 {
		p.since = metrics.Now()
		if v == WrongTablet && ctx.Err() == nil {
			return nil // the map has just been corrected: retry at once
		}
	}
	// A caller without a deadline must not hang forever on an unavailable tablet.
	if p.since.Elapsed() > timeout {
		return Errorf("%w: gave up after %v: %w", ErrUnavailable, timeout, last)
	}
	if err := Sleep(ctx, p.wait.Next()); err != nil {
		return Errorf("%w (last attempt: %w)", err, last)
	}
	return nil
}
