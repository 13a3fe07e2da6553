package percolator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// Defaults of ObserverSpec.
const (
	// DefaultConcurrency leaves it to the node how many runs go on at once: more than
	// that it never starts.
	DefaultConcurrency = 1 << 16
	DefaultDeadline    = 30 * time.Second
	DefaultMaxAttempts = 10
	DefaultBatch       = 100
	// MaxBatch bounds Batch: a batch is one transaction, which is held in memory.
	MaxBatch = 1000
)

// Notification tells an observer which cell changed (§2.4).
type Notification struct {
	Row    string
	Column Column
	// TS is when it changed: the newest commit timestamp that this run acknowledges.
	TS Timestamp
	// Attempt counts the runs for this change that failed before, conflicts not among
	// them: 0 on the first run.
	Attempt int
}

// ObserverFunc runs after a change, in a transaction of its own: the framework
// acknowledges and commits when it returns nil. On a conflict it runs again, so it must
// have no effects outside the transaction that may not be repeated. Any error that it
// returns, and that is not one of tx's own, counts as a failed run, also a conflict of a
// transaction that it has made by itself (DBFrom): to write the same cell in both makes
// every run conflict. To be run again later without that, because something else has to
// come first, return an error that wraps ErrUnavailable; only each 64th of those in a row
// counts (MaxConflicts).
type ObserverFunc func(ctx context.Context, tx *Tx, n Notification) error

// BatchFunc is an ObserverFunc that runs after several changes, of rows of one tablet as a
// rule, in one transaction for all of them: the framework acknowledges and commits all, or
// none. There are at least one and at most as many as Batch says, in the order of their
// rows, each row once; the slice belongs to the function. When it returns an error, or its
// transaction conflicts, each half of the changes is run for again, by itself, until a
// change that fails is alone. Only then is that a failed run, as an ObserverFunc's error is.
// A function that knows which changes fail returns a *PartialError, and the others commit.
type BatchFunc func(ctx context.Context, tx *Tx, changes []Notification) error

// PartialError is returned by a BatchFunc that has done its work for all changes of its batch
// but some. What it wrote is committed, with the acknowledgments of the others, so nothing
// of it may be for a change that failed. Each of these counts as if it had been run for alone
// and had failed with its error: it is tried again, and parked after too many failures. Of
// those whose error wraps ErrUnavailable only each 64th in a row counts (MaxConflicts). If
// all have failed nothing is committed, and if none has, it is no error. If the commit
// conflicts, or a read of the transaction has failed, nothing of this counts, and all are
// tried again, in halves.
//
// It has to be returned as it is: wrapped, or joined with others, it is an error of the whole
// batch like any other. So is one that names a row which is not in the batch.
type PartialError struct {
	Failed map[string]error // by row, each of the batch; nil: that one has not failed
}

// Error names the rows and their errors.
func (e *PartialError) Error() string {
	return fmt.Sprintf("percolator: changes of a batch failed: %v", e.Failed)
}

// ObserverSpec is one registered observer.
type ObserverSpec struct {
	Name   string // unique in the whole cluster
	Column Column // observed by this observer alone
	// Weak: the column is notify-only; runs acknowledge nothing and may happen more than once.
	Weak bool
	Func ObserverFunc // nil if there is a BatchFunc
	// BatchFunc, unless nil, is called in place of Func, with at most Batch changes.
	BatchFunc BatchFunc
	Batch     int // 0 without a BatchFunc
	// most runs at once in one process, which its node's ObserverWorkers bound too
	Concurrency int
	Deadline    time.Duration // of one run; its context ends then
	MaxAttempts int           // failed runs before the notification is parked
	// runs of a row in a row that come to nothing and then count as a failed one
	MaxConflicts int
	Priority     func(Notification) int // of rows that wait: the greatest runs first; may be nil
	Debounce     time.Duration          // how long a cell has to rest before its run; may be 0
}

// Registry collects the observers of one process, and the tables that it needs besides,
// before its node opens. Not for concurrent use.
type Registry struct {
	observers []ObserverSpec
	tables    []TableSpec
	names     map[string]bool
	columns   map[Column]string
	errs      []error
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{names: map[string]bool{}, columns: map[Column]string{}}
}

// ObserverOption changes one field of an observer's registration.
type ObserverOption func(*ObserverSpec)

// Concurrency bounds how many runs of the observer go on at once in one process. The
// default is as many as the node runs of all its observers together
// (Config.ObserverWorkers).
func Concurrency(n int) ObserverOption { return func(o *ObserverSpec) { o.Concurrency = n } }

// Deadline bounds one run; default 30 s. It must stay below the history that the cluster keeps.
func Deadline(d time.Duration) ObserverOption { return func(o *ObserverSpec) { o.Deadline = d } }

// MaxAttempts is how many failed runs park a notification; default 10.
func MaxAttempts(n int) ObserverOption { return func(o *ObserverSpec) { o.MaxAttempts = n } }

// Strong registers an observer of a data column: at most one of its transactions commits
// per change, and several changes may be collapsed into one run (§2.4). Faults are kept
// for Err.
func (r *Registry) Strong(name string, col Column, fn ObserverFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Func: fn}, opts)
}

// Weak registers an observer of a notify-only column: Tx.Notify makes it run, and nothing
// else can write the column. Such notifications conflict with nothing, may run more than
// once and are never lost. Faults are kept for Err.
func (r *Registry) Weak(name string, col Column, fn ObserverFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Weak: true, Func: fn}, opts)
}

// Table has the node make a table when it starts, as DB.CreateTable does. Tables of
// observers are made anyway; of those it gives the split keys. Faults are kept for Err.
func (r *Registry) Table(spec TableSpec) {
	fault := func(text string) {
		r.errs = append(r.errs, txn.Errorf("%w: table %q: %s", ErrInvalid, spec.Name, text))
	}
	switch {
	case spec.Name == "":
		fault("no name")
	case slices.ContainsFunc(r.tables, func(t TableSpec) bool { return t.Name == spec.Name }):
		fault("registered twice")
	default:
		spec.SplitKeys = slices.Clone(spec.SplitKeys)
		r.tables = append(r.tables, spec)
	}
}

// StrongBatch registers a strong observer that takes several changes in one transaction: up
// to Batch of those that wait for it in this process when a run begins. It never waits for
// more to come, so an idle system runs for each change at once, by itself. What Strong
// promises holds for each change: at most one transaction commits for it, and a change that
// always fails is parked, with its own error, and no other with it. Concurrency counts
// batches; Deadline is that of one. Faults are kept for Err.
//
// A batch pays where most of a transaction's cost is the transaction: many small changes
// that are independent of each other. One whose changes often write the same cells as those
// of another batch conflicts more often than single runs do.
func (r *Registry) StrongBatch(name string, col Column, fn BatchFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, BatchFunc: fn, Batch: DefaultBatch}, opts)
}

// WeakBatch registers a weak observer that takes several notifications in one transaction,
// as StrongBatch does. Faults are kept for Err.
func (r *Registry) WeakBatch(name string, col Column, fn BatchFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Weak: true, BatchFunc: fn, Batch: DefaultBatch},
		opts)
}

// Batch is how many changes a run of an observer of StrongBatch or WeakBatch takes at most;
// default 100, and no more than MaxBatch.
func Batch(n int) ObserverOption { return func(o *ObserverSpec) { o.Batch = n } }

func (r *Registry) add(o ObserverSpec, opts []ObserverOption) {
	o.Concurrency, o.Deadline, o.MaxAttempts = DefaultConcurrency, DefaultDeadline,
		DefaultMaxAttempts
	o.MaxConflicts = DefaultMaxConflicts
	for _, opt := range opts {
		opt(&o)
	}
	before := len(r.errs)
	r.check(o)
	if len(r.errs) > before {
		return
	}
	r.names[o.Name] = true
	r.columns[o.Column] = o.Name
	r.observers = append(r.observers, o)
}

func (r *Registry) check(o ObserverSpec) {
	fault := func(format string, args ...any) {
		r.errs = append(r.errs, txn.Errorf("%w: observer %q: %s", ErrInvalid, o.Name,
			fmt.Sprintf(format, args...)))
	}
	if o.Name == "" {
		fault("no name")
	}
	if r.names[o.Name] {
		fault("registered twice")
	}
	switch {
	case o.Func == nil && o.BatchFunc == nil:
		fault("no function")
	case o.Func != nil && o.Batch != 0:
		fault("its function takes one change: register it by StrongBatch or WeakBatch for a Batch")
	case o.BatchFunc != nil && (o.Batch < 1 || o.Batch > MaxBatch):
		fault("a batch of %d changes: it may have 1 to %d", o.Batch, MaxBatch)
	}
	if o.Column.Table == "" {
		fault("no table")
	}
	if other, taken := r.columns[o.Column]; taken {
		fault("column %q of table %q is observed by %q already", o.Column.Name, o.Column.Table,
			other)
	}
	if o.Concurrency < 1 || o.Deadline <= 0 || o.MaxAttempts < 1 {
		fault("concurrency %d, deadline %v and attempts %d must be positive", o.Concurrency,
			o.Deadline, o.MaxAttempts)
	}
	if o.MaxConflicts < 1 {
		fault("%d conflicts: at least one run has to come to nothing before that counts",
			o.MaxConflicts)
	}
	if o.Debounce < 0 || o.Debounce > longestDebounce {
		fault("a debounce of %v: it has to be between 0 and %v", o.Debounce, longestDebounce)
	}
}

// Observers returns what was registered without fault, in order. The slice belongs to the caller.
func (r *Registry) Observers() []ObserverSpec { return append([]ObserverSpec(nil), r.observers...) }

// Tables returns the tables that were registered with Table without fault, in order. The
// slice belongs to the caller.
func (r *Registry) Tables() []TableSpec { return slices.Clone(r.tables) }

// Err joins every fault of registration; nil if there was none. Each wraps ErrInvalid.
func (r *Registry) Err() error { return errors.Join(r.errs...) }

type dbKey struct{}

// withDB returns a context in which DBFrom finds db. The framework calls it before it
// runs an observer.
func withDB(ctx context.Context, db *DB) context.Context {
	return context.WithValue(ctx, dbKey{}, db)
}

// DBFrom is a handle on the database on whose behalf an observer runs, one of the
// caller's own; nil outside of an observer.
func DBFrom(ctx context.Context) *DB {
	db, ok := ctx.Value(dbKey{}).(*DB)
	if !ok || db == nil {
		return nil
	}
	return newDB(db.c)
}
