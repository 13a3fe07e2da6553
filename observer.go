package percolator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/percolator-go/percolator/internal/txn"
)

// Defaults of ObserverSpec.
const (
	// DefaultConcurrency leaves the bound on concurrent runs to the process.
	DefaultConcurrency = 1 << 16
	DefaultDeadline    = 30 * time.Second
	DefaultMaxAttempts = 10
	DefaultBatch       = 100
	// MaxBatch is the upper limit of Batch: a batch is one transaction, held in memory.
	MaxBatch = 1000
)

// Notification identifies a changed cell of an observed column (§2.4).
type Notification struct {
	Row    string
	Column Column
	// CommitTS is the newest commit timestamp of the cell that this run acknowledges.
	CommitTS Timestamp
	// TS is CommitTS.
	//
	// Deprecated: use CommitTS.
	TS Timestamp
	// Attempt is the number of failed runs for this change so far. MaxConflicts consecutive
	// conflicts count as one.
	Attempt int
}

// ObserverFunc handles one change, in a transaction of its own. When it returns nil, the
// framework acknowledges the notification and commits, in the same transaction. On a
// conflict it runs again, so its effects outside the transaction must be repeatable.
//
// An error that it returns and that does not come from tx counts as a failed run. This
// includes a conflict of another transaction that it runs itself (DBFrom); a function that
// writes the same cell in both transactions conflicts with itself on every run. To be
// retried later without a failed run, for example because another row has to be processed
// first, return an error that wraps ErrUnavailable: only every 64th consecutive one counts
// (MaxConflicts). If an external service refuses the function, for any row, return the error of
// RetryAfter: the whole observer waits, and nothing counts.
type ObserverFunc func(ctx context.Context, tx *Tx, n Notification) error

// BatchFunc handles several changes in one transaction: the framework acknowledges and
// commits all of them or none. There are 1 to Batch changes, ordered by row, with distinct
// rows, usually of one tablet; the slice belongs to the function. If the function returns an
// error, or its transaction conflicts, the framework runs it again for each half of the
// changes, and so on down to single changes. Only the error of a single change counts as a
// failed run, as the error of an ObserverFunc does. A function that can tell which changes
// fail returns a *PartialError, and the others commit.
//
// The error of RetryAfter keeps the batch whole: the observer waits. After an error that wraps
// ErrUnavailable the batches of the observer are at most half as large, in this process, until
// runs commit: each commit doubles their size again.
type BatchFunc func(ctx context.Context, tx *Tx, changes []Notification) error

// PartialError is the error of a BatchFunc that failed for some changes of its batch. Its
// transaction commits and acknowledges the other changes, so it must contain no writes for
// the failed ones. Each failed change counts as a failed run with its own error: it is
// retried, and parked after MaxAttempts; of errors that wrap ErrUnavailable only every 64th
// consecutive one counts (MaxConflicts). If all changes failed, nothing is committed. If
// none failed, it is not an error. If the commit conflicts, or a read of the transaction
// failed, nothing counts, and the framework retries each half of the batch.
//
// A BatchFunc must return it directly. If it is wrapped or joined with other errors, or
// names a row outside the batch, it is an error of the whole batch.
type PartialError struct {
	Failed map[string]error // by row of the batch; a nil error is no failure
}

// Error lists the rows and their errors.
func (e *PartialError) Error() string {
	return fmt.Sprintf("percolator: changes of a batch failed: %v", e.Failed)
}

// ObserverSpec is one registered observer.
type ObserverSpec struct {
	Name   string // unique in the cluster
	Column Column // other observers may observe it too
	// Weak marks a notify-only column: a run acknowledges nothing and may repeat. The observers
	// of a column are all weak or all strong.
	Weak bool
	Func ObserverFunc // nil if BatchFunc is set
	// BatchFunc is called instead of Func, with at most Batch changes, unless it is nil.
	BatchFunc BatchFunc
	Batch     int // 0 without a BatchFunc
	// Concurrency is the maximum number of concurrent runs in one process. The node's
	// ObserverWorkers, or the Workers of package worker, bound them too.
	Concurrency int
	Deadline    time.Duration // maximum duration of one run, whose context then ends
	MaxAttempts int           // failed runs before the notification is parked
	// MaxConflicts is the number of consecutive conflicts of a row that count as one failed
	// run.
	MaxConflicts int
	Priority     func(Notification) int // of a queued row, highest first; nil: order of arrival
	Debounce     time.Duration          // time without changes before a run; 0: none
	Version      int                    // of the function; stored with each acknowledgment
	// OnParked is called before a notification is parked; nil means nothing is called.
	OnParked func(ctx context.Context, p Parked) error
}

// Registry collects the observers and additional tables of one process before its node
// opens. It is not safe for concurrent use.
type Registry struct {
	observers  []ObserverSpec
	wrapped    []ObserverSpec // copies of the first observers, within the middleware
	middleware []Middleware   // outermost first
	tables     []TableSpec
	names      map[string]bool
	columns    map[Column]ObserverSpec // the first observer of each
	errs       []error
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{names: map[string]bool{}, columns: map[Column]ObserverSpec{}}
}

// ObserverOption changes one field of an observer's registration.
type ObserverOption func(*ObserverSpec)

// Concurrency sets the maximum number of concurrent runs of the observer in one process. Defaults
// to the bound on the runs of all observers of the process together (ObserverWorkers of a node's
// Config, Workers of a worker's).
func Concurrency(n int) ObserverOption { return func(o *ObserverSpec) { o.Concurrency = n } }

// Deadline sets the maximum duration of one run. Defaults to 30 s. It must be shorter than the
// history that the cluster keeps.
func Deadline(d time.Duration) ObserverOption { return func(o *ObserverSpec) { o.Deadline = d } }

// MaxAttempts sets the number of failed runs after which a notification is parked. Defaults to 10.
func MaxAttempts(n int) ObserverOption { return func(o *ObserverSpec) { o.MaxAttempts = n } }

// Strong registers an observer of a data column: at most one of its transactions commits per
// change, and several changes may be collapsed into one run (§2.4). A column may have several
// observers, of one program or of several. Each sees every change and runs independently: one that
// is slow, paused or has a change parked does not delay the others, and nothing orders their runs.
// Err reports an invalid registration.
func (r *Registry) Strong(name string, col Column, fn ObserverFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Func: fn}, opts)
}

// Weak registers an observer of a notify-only column: Tx.Notify triggers it, and no other
// write to the column is allowed. Weak notifications never conflict, may run more than once
// and are never lost. Err reports an invalid registration.
func (r *Registry) Weak(name string, col Column, fn ObserverFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Weak: true, Func: fn}, opts)
}

// Table registers a table that the node or worker creates when it starts, as DB.CreateTable
// does. The node or worker also creates the tables of observers; register one of those to set its
// split keys. Registering a table again adds its split keys and ignores its Expiry. Err reports an
// invalid registration.
func (r *Registry) Table(spec TableSpec) {
	if spec.Name == "" {
		r.errs = append(r.errs, txn.Errorf("%w: table %q: no name", ErrInvalid, spec.Name))
		return
	}
	same := func(t TableSpec) bool { return t.Name == spec.Name }
	if i := slices.IndexFunc(r.tables, same); i >= 0 {
		keys := slices.Concat(r.tables[i].SplitKeys, spec.SplitKeys)
		slices.Sort(keys)
		r.tables[i].SplitKeys = slices.Compact(keys)
		return
	}
	spec.SplitKeys = slices.Clone(spec.SplitKeys)
	r.tables = append(r.tables, spec)
}

// StrongBatch registers a strong observer that handles several changes in one transaction:
// up to Batch of those queued in this process when a run begins. A run never waits for more
// changes, so in an idle system each change runs immediately and alone. The guarantees of
// Strong hold for each change: at most one transaction commits for it, and a change that
// always fails is parked alone, with its own error. Concurrency and Deadline apply to
// batches. Err reports an invalid registration.
//
// Batches pay off for many small, independent changes, where the cost of the transaction
// dominates. If the changes of concurrent batches often write the same cells, batches
// conflict more often than single runs.
func (r *Registry) StrongBatch(name string, col Column, fn BatchFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, BatchFunc: fn, Batch: DefaultBatch}, opts)
}

// WeakBatch registers a weak observer that handles several notifications in one transaction,
// as StrongBatch does. Err reports an invalid registration.
func (r *Registry) WeakBatch(name string, col Column, fn BatchFunc, opts ...ObserverOption) {
	r.add(ObserverSpec{Name: name, Column: col, Weak: true, BatchFunc: fn, Batch: DefaultBatch},
		opts)
}

// Batch sets the maximum number of changes in a run of StrongBatch or WeakBatch. Defaults to
// 100; at most MaxBatch.
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
	if _, taken := r.columns[o.Column]; !taken {
		r.columns[o.Column] = o
	}
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
		fault("Batch needs a BatchFunc: register it with StrongBatch or WeakBatch")
	case o.BatchFunc != nil && (o.Batch < 1 || o.Batch > MaxBatch):
		fault("Batch is %d; it must be between 1 and %d", o.Batch, MaxBatch)
	}
	if o.Column.Table == "" {
		fault("no table")
	}
	if other, taken := r.columns[o.Column]; taken && other.Weak != o.Weak {
		fault("column %q of table %q is already observed by %q, and observers of one column are "+
			"all strong or all weak", o.Column.Name, o.Column.Table, other.Name)
	}
	if o.Concurrency < 1 || o.Deadline <= 0 || o.MaxAttempts < 1 {
		fault("Concurrency %d, Deadline %v and MaxAttempts %d must be positive", o.Concurrency,
			o.Deadline, o.MaxAttempts)
	}
	if o.MaxConflicts < 1 {
		fault("MaxConflicts is %d; it must be at least 1", o.MaxConflicts)
	}
	if o.Version < 0 || o.Version > math.MaxInt32 {
		fault("Version is %d; it must be between 0 and %d", o.Version, math.MaxInt32)
	}
	if o.Debounce < 0 || o.Debounce > maxDebounce {
		fault("Debounce is %v; it must be between 0 and %v", o.Debounce, maxDebounce)
	}
}

// Observers returns the valid observers in the order of their registration, with the registry's
// middleware around their functions. The slice belongs to the caller.
func (r *Registry) Observers() []ObserverSpec {
	for _, o := range r.observers[len(r.wrapped):] {
		r.wrapped = append(r.wrapped, r.wrap(o))
	}
	return slices.Clone(r.wrapped)
}

// Tables returns the tables registered by Table, in the order of their registration. The slice
// belongs to the caller.
func (r *Registry) Tables() []TableSpec { return slices.Clone(r.tables) }

// Err returns the errors of all invalid registrations joined, or nil. Each wraps ErrInvalid.
func (r *Registry) Err() error { return errors.Join(r.errs...) }

type dbKey struct{}

// withDB returns a context from which DBFrom returns db. The framework calls it before each
// run of an observer.
func withDB(ctx context.Context, db *DB) context.Context {
	return context.WithValue(ctx, dbKey{}, db)
}

// DBFrom returns a new handle to the database for which an observer runs. It returns nil if
// ctx is not the context of an observer's run.
func DBFrom(ctx context.Context) *DB {
	db, ok := ctx.Value(dbKey{}).(*DB)
	if !ok || db == nil {
		return nil
	}
	return newDB(db.c)
}
