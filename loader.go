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
	// DefaultLoaderWorkers is enough to keep a disk busy whose syncs take some
	// milliseconds, and costs nothing measurable where they take none
	// (docs/operating/running.md).
	DefaultLoaderWorkers = 128
	DefaultLoaderBacklog = 10_000
	maxLoaderErrors      = 100
)

// LoaderConfig tunes a Loader. Zero fields take the defaults.
type LoaderConfig struct {
	Workers int // transactions at once; default 128
	Queue   int // functions that wait for a worker; default twice Workers
	// Backlog is the most notifications that may wait for observers before Load blocks,
	// so that observers that are slower than the loaders do not leave ever longer queues
	// behind; default 10,000, negative: no bound. Only what can run counts: not what is
	// parked, nor what waits for observers that are paused, retired or linked by no
	// process. All loaders of a handle share one view of it, some milliseconds old. Loads
	// from inside an observer are never held up: they may be what empties the queue.
	Backlog int
	// Name is the option Name of all its transactions.
	Name string
}

// Loader runs many small transactions with bounded concurrency and backpressure (§2.4's
// loader transactions). Its methods may be used concurrently.
type Loader struct {
	db    *DB
	opts  []TxOption
	queue chan load
	wg    sync.WaitGroup
	most  int // notifications that may wait; 0: no bound

	closing sync.RWMutex // held for reading while a function is being queued
	closed  bool
	end     chan struct{} // closed by Close, for those who wait for the backlog

	mu     sync.Mutex
	errs   []error
	failed int
}

type load struct {
	ctx  context.Context
	fn   func(context.Context, *Tx) error
	then func(error) // nil: a failure is kept for Close
}

// Loader starts a loader. It must be closed.
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

// Load queues fn, to be run as Transact does, under ctx. It blocks while the queue is
// full or too much waits for observers (LoaderConfig.Backlog), and returns when fn is
// queued: its failure is reported by Close. It returns ctx's error if ctx ends first,
// ErrClosed after Close.
func (l *Loader) Load(ctx context.Context, fn func(context.Context, *Tx) error) error {
	return l.LoadThen(ctx, fn, nil)
}

// LoadThen is Load for those who must know how each transaction ended: then is called
// once with its outcome, on the worker, which it holds up, and Close reports nothing of
// it. then is not called if LoadThen returns an error.
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

// Close waits for all that was queued and joins every failure; of more than a hundred,
// the first hundred and a count.
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
