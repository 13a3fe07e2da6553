package tpce

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/txn"
)

// patience bounds one transaction, and so a stall.
const patience = 30 * time.Second

// load sends transactions from concurrent callers, each as soon as its last has returned, until
// stop is called or ctx ends. It calls done, concurrently, after each transaction.
func (e *emulator) load(ctx context.Context, callers int, done func(k kind, began time.Time, err error)) (stop func()) {
	var stopping atomic.Bool
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			w := e.worker(i)
			for !stopping.Load() && ctx.Err() == nil {
				began := time.Now()
				k, err := w.within(ctx)
				done(k, began, err)
			}
		})
	}
	return func() {
		stopping.Store(true)
		wg.Wait()
	}
}

// within runs the next transaction with a deadline.
func (w *worker) within(ctx context.Context) (kind, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return w.next(ctx)
}

// driven is what a load has done in its measured part.
type driven struct {
	began          time.Time     // of the measured part
	took           time.Duration // of it
	perSecond      float64
	executed       float64       // trade-results per second: TPC-E's tpsE
	client, server time.Duration // processor time per transaction
	cpus           float64       // processors that the servers used
	latencies      [kinds]*harness.Latencies
}

// drive loads a store for a warm-up and then measures. server returns the servers' processor time
// so far.
func drive(ctx context.Context, e *emulator, callers int, warmup, d time.Duration,
	server func() time.Duration) (f driven, err error) {
	for k := range f.latencies {
		f.latencies[k] = harness.NewLatencies()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring atomic.Bool
	stop := e.load(ctx, callers, func(k kind, began time.Time, err error) {
		if err != nil {
			cancel(err) // the first error counts
		} else if measuring.Load() {
			f.latencies[k].Record(time.Since(began))
		}
	})
	_ = txn.Sleep(ctx, warmup)
	measuring.Store(true)
	clientBefore, serverBefore := harness.CPUOf(), server()
	f.began = time.Now()
	_ = txn.Sleep(ctx, d)
	measuring.Store(false)
	f.took = time.Since(f.began)
	f.client, f.server = harness.CPUOf()-clientBefore, server()-serverBefore
	stop()
	var count int64
	for _, l := range f.latencies {
		count += l.Count()
	}
	if count == 0 && ctx.Err() == nil {
		return f, errors.New("tpce: no transaction returned")
	}
	f.perSecond = float64(count) / f.took.Seconds()
	f.executed = float64(f.latencies[tradeResult].Count()) / f.took.Seconds()
	f.cpus = f.server.Seconds() / f.took.Seconds()
	f.client /= time.Duration(max(1, count))
	f.server /= time.Duration(max(1, count))
	return f, context.Cause(ctx)
}

// openLoop sends transactions at a constant rate, from as many workers as needed, up to limit.
func (e *emulator) openLoop(ctx context.Context, rate float64, d time.Duration, limit int) (*harness.Latencies, error) {
	idle := make(chan *worker, limit)
	for i := range limit {
		idle <- e.worker(openWorkers + i)
	}
	return harness.OpenLoop(ctx, rate, d, limit, func(ctx context.Context, _ int) error {
		w := <-idle // never waits: there are as many workers as concurrent calls
		defer func() { idle <- w }()
		_, err := w.within(ctx)
		return err
	})
}

// openWorkers is the first seed of an open loop's workers, behind those of closed ones.
const openWorkers = 1 << 16

// settleBooks executes what waits for its execution, and checks the conditions.
func (e *emulator) settleBooks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checking)
	defer cancel()
	return errors.Join(e.worker(0).drain(ctx), e.verify(ctx))
}

// checking bounds the check at the end.
const checking = 2 * time.Minute
