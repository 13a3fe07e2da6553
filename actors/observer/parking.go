package observer

import (
	"context"
	"fmt"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// The user's OnParked is called before the notification is parked, on the goroutine of the run's
// invocation actor: if the process dies in between, the next run calls it again.

// parkingAtOnce is the maximum number of concurrent calls of one observer's OnParked.
const parkingAtOnce = 4

// staleFor bounds the time for which scanners and hints deliver changes as they were before they were
// parked.
const staleFor = time.Minute

// mayBeParked reports whether the change may have been parked after a scan had read it or its hint was
// sent: it has failed before, or the observer has parked a change within staleFor.
func (e *entry) mayBeParked() bool {
	return e.attempts > 0 || e.known != nil && e.known.Attempts > 0 || time.Since(e.obs.parkedAt) < staleFor
}

// beforeParking calls the observer's OnParked for the change n, of which as many runs have failed as
// attempts says; cause is the error of the last one. If OnParked returns an error, the notification
// must not be parked yet.
func (r *run) beforeParking(n mvcc.Notify, attempts uint32, cause error) error {
	if r.obs.spec.OnParked == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(txn.WithOrigin(r.base, r.origin), r.timeout)
	defer cancel()
	select {
	case r.obs.parking <- struct{}{}:
		defer func() { <-r.obs.parking }()
	case <-ctx.Done():
		return fmt.Errorf("observer: OnParked not called: %d earlier calls have not returned within %v",
			parkingAtOnce, r.timeout)
	}
	err := r.callOnParked(ctx, percolator.Parked{
		Observer: r.obs.spec.Name, Row: r.cell.Row, Column: r.obs.spec.Column,
		CommitTS: percolator.Timestamp(n.TS), Attempts: int(attempts), Err: cause,
	})
	if err != nil {
		return fmt.Errorf("observer: OnParked failed: %w", err)
	}
	return nil
}

func (r *run) callOnParked(ctx context.Context, p percolator.Parked) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	return r.obs.spec.OnParked(ctx, p)
}
