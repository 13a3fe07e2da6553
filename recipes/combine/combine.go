// Package combine maintains aggregates with many writers, such as counters, sums and sets, without
// the conflicts of a counter that every transaction reads and writes.
//
// Add writes an update to a row of its own, which never conflicts, and notifies the bucket of the
// key's hash. A weak observer, usually one run per bucket at a time, reads the queued updates of
// the bucket, combines them per key, writes the results and deletes the updates, in one
// transaction. Each update is therefore counted exactly once, even if runs are repeated, and a
// hot key costs one write for all updates of a run.
//
// Deleted updates stay in the history for a while, and scans have to skip them. A bucket is
// therefore divided into time slices, and each notification covers one slice: a run skips only
// the deleted updates of its own slice.
//
// Results lag by the time until a run starts, some milliseconds in an idle system. Get returns a
// value including the updates that are not combined yet.
package combine

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Defaults of Config.
const (
	DefaultBuckets = 16
	DefaultBatch   = 1000
)

// Config configures a Queue.
type Config[V any] struct {
	// Name is the name of the observer, unique in the cluster.
	Name string
	// Table is the table of the updates. Defaults to Name.
	Table string
	// Result is the column of the values; the row is the key.
	Result percolator.TypedColumn[V]
	// Combine adds one or more updates, in no particular order, to the value; ok is false if
	// there is none. If keep is false, the value is deleted. Combine must have no side effects,
	// since the transaction may be retried.
	Combine func(key string, value V, ok bool, updates []V) (combined V, keep bool)
	// Buckets is the number of buckets and, while runs keep up, about that of concurrent runs;
	// runs for several time slices of a bucket may be concurrent. It must not change while
	// updates are queued. Defaults to DefaultBuckets.
	Buckets int
	// Batch is the maximum number of updates per run. Defaults to DefaultBatch.
	Batch int
}

// Queue is a combine queue. Its methods except Register are safe for concurrent use.
type Queue[V any] struct {
	cfg    Config[V]
	update percolator.TypedColumn[V]
	wake   percolator.Column
}

// New returns a Queue. It panics with percolator.ErrInvalid if cfg is invalid.
func New[V any](cfg Config[V]) *Queue[V] {
	if cfg.Table == "" {
		cfg.Table = cfg.Name
	}
	if cfg.Buckets == 0 {
		cfg.Buckets = DefaultBuckets
	}
	if cfg.Batch == 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.Name == "" || cfg.Result.Codec == nil || cfg.Combine == nil || cfg.Buckets < 1 ||
		cfg.Batch < 1 {
		panic(fmt.Errorf("%w: combine queue %q: Name, Result.Codec and Combine are required, "+
			"and Buckets and Batch must be positive", percolator.ErrInvalid, cfg.Name))
	}
	return &Queue[V]{
		cfg:    cfg,
		update: percolator.Typed(percolator.Column{Table: cfg.Table, Name: "update"}, cfg.Result.Codec),
		wake:   percolator.Column{Table: cfg.Table, Name: "wake"},
	}
}

// Register registers the queue's observer and the tables of updates and of results.
func (q *Queue[V]) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	r.Table(percolator.TableSpec{Name: q.cfg.Result.Column.Table})
	r.Weak(q.cfg.Name, q.wake, q.Drain, opts...)
}

// Add buffers an update of the key. It never conflicts.
func (q *Queue[V]) Add(tx *percolator.Tx, key string, update V) {
	bucket, start := q.bucket(key), tx.StartTS()
	if start == 0 { // the transaction has read nothing yet
		start = percolator.Timestamp(time.Now().UnixMilli()) << counterBits
	}
	// The timestamp orders updates by age, as far as clocks agree; the random number makes the row
	// unique.
	row := tuple.Pack(bucket, start, rand.Uint64(), key)
	q.update.Set(tx, row, update)
	tx.Notify(tuple.Pack(bucket, slice(start)), q.wake)
}

// Get returns the value of the key combined with its queued updates, both from the snapshot of
// r. It reads all queued updates of the key's bucket.
func (q *Queue[V]) Get(ctx context.Context, r percolator.Reader, key string) (V, bool, error) {
	value, ok, err := q.cfg.Result.Get(ctx, r, key)
	if err != nil {
		return value, false, err
	}
	waiting, err := q.waiting(ctx, r, percolator.Rows(q.cfg.Table).Prefix(tuple.Prefix(q.bucket(key))))
	if err != nil || len(waiting.of[key]) == 0 {
		return value, ok && err == nil, err
	}
	value, ok = q.cfg.Combine(key, value, ok, waiting.of[key])
	return value, ok, nil
}

func (q *Queue[V]) bucket(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // Write of a hash never fails
	return h.Sum64() % uint64(q.cfg.Buckets)
}

// updates are queued updates of one bucket.
type updates[V any] struct {
	rows []string
	keys []string       // distinct, oldest first
	of   map[string][]V // by key
}

const (
	// counterBits is the number of bits of a timestamp's counter, below the milliseconds.
	counterBits = 18
	// sliceBits is the number of low bits of a timestamp within one slice: the counter, and 8 bits
	// of milliseconds, so that a slice spans 256 ms.
	sliceBits = counterBits + 8
)

// slice returns the time slice of the updates of a transaction.
func slice(start percolator.Timestamp) uint64 { return uint64(start) >> sliceBits }

// waiting reads queued updates, oldest first.
func (q *Queue[V]) waiting(ctx context.Context, r percolator.Reader,
	rows percolator.RowRange) (updates[V], error) {
	found := updates[V]{of: map[string][]V{}}
	for u, err := range q.update.Scan(ctx, r, rows) {
		if err != nil {
			return found, err
		}
		var bucket, start, number uint64
		var key string
		if err := tuple.Unpack(u.Row, &bucket, &start, &number, &key); err != nil {
			return found, err
		}
		if _, known := found.of[key]; !known {
			found.keys = append(found.keys, key)
		}
		found.rows = append(found.rows, u.Row)
		found.of[key] = append(found.of[key], u.Value)
	}
	return found, nil
}

// Column returns the weak column that Drain observes.
func (q *Queue[V]) Column() percolator.Column { return q.wake }

// Drain is the observer of Column, for programs that register it themselves. Concurrent runs for
// one slice delete the same rows, and runs that combine the same key write the same result, so
// that only one of them commits. A value that cannot be decoded parks the notification of its
// slice.
func (q *Queue[V]) Drain(ctx context.Context, tx *percolator.Tx, n percolator.Notification) error {
	var bucket, at uint64
	if err := tuple.Unpack(n.Row, &bucket, &at); err != nil {
		return err
	}
	found, err := q.waiting(ctx, tx, percolator.Rows(q.cfg.Table).Limit(q.cfg.Batch).
		From(tuple.Pack(bucket, at<<sliceBits)).Before(tuple.Pack(bucket, (at+1)<<sliceBits)))
	if err != nil || len(found.rows) == 0 {
		return err
	}
	values, err := q.cfg.Result.GetMulti(ctx, tx, found.keys...)
	if err != nil {
		return err
	}
	have := map[string]V{}
	for _, v := range values {
		have[v.Row] = v.Value
	}
	for _, key := range found.keys {
		value, ok := have[key]
		if value, keep := q.cfg.Combine(key, value, ok, found.of[key]); keep {
			q.cfg.Result.Set(tx, key, value)
		} else {
			q.cfg.Result.Delete(tx, key)
		}
	}
	for _, row := range found.rows {
		q.update.Delete(tx, row)
	}
	if len(found.rows) == q.cfg.Batch {
		tx.Notify(n.Row, q.wake) // there may be more
	}
	return nil
}

// Counter returns a Queue of sums: the value of a key is the sum of its updates, and is deleted
// when it is zero.
func Counter(name string, result percolator.Column) *Queue[int64] {
	return New(Config[int64]{
		Name: name, Result: percolator.Typed(result, percolator.Integer[int64]()),
		Combine: func(_ string, sum int64, _ bool, updates []int64) (int64, bool) {
			for _, n := range updates {
				sum += n
			}
			return sum, sum != 0
		},
	})
}
