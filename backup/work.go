package backup

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// Common parts of backups, verifications, restores and loads: rate, retries and progress. work owns
// the tally, behind a lock, and the limiter; workers share both and call it on their own
// goroutines.

// Options configure a backup, verification, restore or load. Zero fields get the defaults.
type Options struct {
	Workers  int            // number of ranges processed concurrently. Defaults to DefaultWorkers
	Rate     int64          // limit in bytes of rows, columns and values per second; 0 for none
	Progress func(Progress) // called by the workers after each step, one call at a time
	// Patience is the time without progress after which failing requests end the work. Defaults
	// to DefaultPatience.
	Patience time.Duration
	By       string // initiator, shown to operators
}

// Defaults of the options.
const (
	DefaultWorkers  = 2
	DefaultPatience = 2 * time.Minute
)

// Progress is the progress of a backup, verification, restore or load, including that of
// earlier runs, except for the Bytes of a restore or load.
type Progress struct {
	Ranges, Done   int
	Records, Bytes int64
}

// transient reports whether a retry may succeed after the error.
func transient(err error) bool {
	if refused, ok := errors.AsType[*txn.ServerError](err); ok {
		switch refused.Code {
		case pb.Error_CODE_UNAVAILABLE, pb.Error_CODE_OVERLOADED, pb.Error_CODE_UNKNOWN,
			pb.Error_CODE_NOT_LEADER, pb.Error_CODE_NOT_PROPOSED, pb.Error_CODE_INTERNAL,
			pb.Error_CODE_DISK_FULL:
			return true
		}
		return false
	}
	return errors.Is(err, txn.ErrUnavailable) || errors.Is(err, txn.ErrOverloaded) ||
		errors.Is(err, txn.ErrLocked) || errors.Is(err, txn.ErrDiskFull) ||
		errors.Is(err, context.DeadlineExceeded)
}

// work is the common state of a backup, verification, restore or load.
type work struct {
	Options
	client  *txn.Client
	from    *Location
	limiter *rate.Limiter

	mu    sync.Mutex
	tally Progress
}

func newWork(c *txn.Client, l *Location, o Options) *work {
	w := &work{Options: o, client: c, from: l}
	if w.Workers <= 0 {
		w.Workers = DefaultWorkers
	}
	if w.Patience <= 0 {
		w.Patience = DefaultPatience
	}
	w.limiter = rate.NewLimiter(rate.Inf, 0)
	if o.Rate > 0 {
		// Small bursts: data read in a burst delays all other clients.
		w.limiter = rate.NewLimiter(rate.Limit(o.Rate), int(max(o.Rate/64, 64<<10)))
	}
	return w
}

// plans adds to the tally ranges that will be processed; in a verification, files.
func (w *work) plans(ranges int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.Ranges += ranges
}

// count adds finished ranges, records and bytes to the tally, and passes it to Options.Progress.
func (w *work) count(done int, records, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.Done += done
	w.tally.Records, w.tally.Bytes = w.tally.Records+records, w.tally.Bytes+bytes
	if w.Progress != nil {
		w.Progress(w.tally)
	}
}

// throttle waits until Options.Rate allows so many further bytes.
func (w *work) throttle(ctx context.Context, bytes int64) error {
	if w.limiter.Limit() == rate.Inf {
		return nil
	}
	for burst := int64(w.limiter.Burst()); bytes > 0; bytes -= burst {
		if err := w.limiter.WaitN(ctx, int(min(bytes, burst))); err != nil {
			return err
		}
	}
	return nil
}

// persist repeats fn after transient errors as long as it makes progress at least once within the
// patience. fn returns whether it made progress.
func (w *work) persist(ctx context.Context, fn func() (further bool, err error)) error {
	since, wait := time.Now(), 10*time.Millisecond
	for {
		further, err := fn()
		if err == nil || ctx.Err() != nil || !transient(err) {
			return err
		}
		if further {
			since, wait = time.Now(), 10*time.Millisecond
		}
		if time.Since(since) > w.Patience {
			return err
		}
		if err := txn.Sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, time.Second)
	}
}

// scan calls fn for each record of the scan, and resumes it after transient errors.
func (w *work) scan(ctx context.Context, s txn.RecordScan, fn func(*mvcc.ReadCell) error) error {
	var own error // fn's error, as opposed to the cluster's
	err := w.persist(ctx, func() (further bool, err error) {
		for c, err := range w.client.Records(ctx, s) {
			if err != nil {
				return further, err
			}
			if own = fn(&c); own != nil {
				return false, nil
			}
			cell := c.Cell
			s.After, s.AfterTS, further = &cell, 0, true
			if s.Since != 0 {
				s.AfterTS = c.CommitTS
			}
		}
		return further, nil
	})
	return errors.Join(own, err)
}
