package percolator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Defaults of LoaderConfig.
const (
	// DefaultLoaderWorkers keeps even a disk with syncs of some milliseconds busy, at no measurable
	// cost on faster disks (docs/operating/running.md).
	DefaultLoaderWorkers = 128
	DefaultLoaderBacklog = 10_000
	maxLoaderErrors      = 100
)

// LoaderConfig configures a Loader. A zero field selects its default.
type LoaderConfig struct {
	// Workers is the number of concurrent transactions. Defaults to 128.
	Workers int
	// Queue is the number of functions that may wait for a worker. Defaults to 2·Workers.
	Queue int
	// Backlog is the number of runnable notifications at which Load blocks, so that slow
	// observers slow the loader down. Defaults to 10,000; a negative value removes the bound.
	// Parked notifications do not count, nor those of observers that are paused, retired,
	// registered by no running process, or blocked by runs that never return. All loaders of a
	// handle share one count, which is up to 250 ms old, or 1 s if counting is slow; if it fails,
	// the count is 0 for up to 1 s. A Load from inside an observer ignores Backlog, since its run
	// may be what reduces the backlog.
	Backlog int
	// Name is the name of the loader's transactions; see the option Name.
	Name string
}

// Loader runs many small transactions with bounded concurrency and backpressure (§2.4's
// loader transactions). Its methods may be used concurrently.
type Loader struct {
	db    *DB
	opts  []TxOption
	queue chan load
	wg    sync.WaitGroup
	most  int // LoaderConfig.Backlog; 0: no bound

	closing sync.RWMutex // held for reading while a function is being queued
	closed  bool
	end     chan struct{} // closed by Close, releases callers blocked on the backlog

	mu     sync.Mutex
	errs   []error
	failed int
}

type load struct {
	ctx  context.Context
	fn   func(context.Context, *Tx) error
	then func(error) // nil: Close reports a failure
}

// Loader starts a loader. The caller must close it.
func (db *DB) Loader(cfg LoaderConfig) *Loader {
	if cfg.Workers <= 0 {
		cfg.Workers = DefaultLoaderWorkers
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 2 * cfg.Workers
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = DefaultLoaderBacklog
	}
	l := &Loader{
		db: db, queue: make(chan load, cfg.Queue), most: max(cfg.Backlog, 0),
		end: make(chan struct{}),
	}
	if cfg.Name != "" {
		l.opts = []TxOption{Name(cfg.Name)}
	}
	for range cfg.Workers {
		l.wg.Go(l.work)
	}
	return l
}

func (l *Loader) work() {
	for job := range l.queue {
		err := l.db.Transact(job.ctx, job.fn, l.opts...)
		if job.then != nil {
			job.then(err)
		} else if err != nil {
			l.fail(err)
		}
	}
}

func (l *Loader) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if len(l.errs) < maxLoaderErrors {
		l.errs = append(l.errs, err)
	}
}

// Load queues fn, which a worker runs as Transact(ctx, fn) does. It blocks while the queue
// is full or the backlog has reached LoaderConfig.Backlog, and returns once fn is queued; Close
// reports its failure. Load returns ctx's error if ctx ends first, and ErrClosed after Close.
func (l *Loader) Load(ctx context.Context, fn func(context.Context, *Tx) error) error {
	return l.LoadThen(ctx, fn, nil)
}

// LoadThen queues fn as Load does. The worker calls then once with the outcome of the transaction, and
// Close does not report it. The worker is blocked until then returns. If
// LoadThen returns an error, then is not called.
func (l *Loader) LoadThen(ctx context.Context, fn func(context.Context, *Tx) error,
	then func(error)) error {
	if l.most > 0 && DBFrom(ctx) == nil {
		if err := l.db.c.AwaitBacklog(ctx, uint64(l.most), l.end); err != nil {
			return err
		}
	}
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.queue <- load{ctx, fn, then}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for all queued functions and returns the errors of those queued by Load, joined: the
// first 100, and the number of the others.
func (l *Loader) Close() error {
	l.closing.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
		close(l.end)
	}
	l.closing.Unlock()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := l.failed - len(l.errs); more > 0 {
		return errors.Join(append(slices.Clip(l.errs),
			fmt.Errorf("percolator: %d more loads failed", more))...)
	}
	return errors.Join(l.errs...)
}
