// Package combine keeps aggregates over many writers, such as counters, sums and sets, without the
// conflicts of a counter that every transaction reads and writes.
//
// Add writes an update to a row of its own, which meets no other writer, and notifies the
// bucket that the key hashes to. A weak observer, one run at a time for a bucket as a rule,
// takes all updates that wait there, combines those of each key, writes the results and
// deletes the updates, in one transaction. So each update is counted exactly once, however
// often runs are repeated, and a hot key costs one write for all updates of a run.
//
// Deleted updates stay in the history of the repository for a while, and whoever scans passes
// over them. So a bucket is divided by time, and a notification is for the updates of one
// slice of it: a run passes over those that were deleted of its own slice alone.
//
// Results are behind by the time that a run takes to start, some milliseconds when idle.
// Whoever has to know a value at once, with what is not combined yet, calls Get.
package combine

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Defaults of Config.
const (
	DefaultBuckets = 16
	DefaultBatch   = 1000
)

// Config says what a queue combines.
type Config[V any] struct {
	// Name is the queue's observer's, unique in the cluster, and that of the table of its
	// updates unless Table says another.
	Name  string
	Table string
	// Result is where the value of a key is kept; the key is the row.
	Result percolator.TypedColumn[V]
	// Combine adds the updates, one or more, to the value, which is the zero V if there is
	// none (ok is false). If keep is false the value is deleted. The order of updates means
	// nothing. It is called in a transaction that may run again: it must have no effects.
	Combine func(key string, value V, ok bool, updates []V) (combined V, keep bool)
	// Buckets is how many runs may be at work at once; default DefaultBuckets. It must not
	// change while updates wait.
	Buckets int
	// Batch is how many updates one run takes at most; default DefaultBatch.
	Batch int
}

// Queue is a combine queue. Its methods may be called concurrently, but for Register.
type Queue[V any] struct {
	cfg    Config[V]
	update percolator.TypedColumn[V]
	wake   percolator.Column
}

// New returns the queue. A faulty configuration is a fault of the program: it panics with
// percolator.ErrInvalid.
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
		panic(fmt.Errorf("%w: combine queue %q: it needs a name, a result with a codec, a function, and "+
			"positive buckets and batch", percolator.ErrInvalid, cfg.Name))
	}
	return &Queue[V]{
		cfg:    cfg,
		update: percolator.Typed(percolator.Column{Table: cfg.Table, Name: "update"}, cfg.Result.Codec),
		wake:   percolator.Column{Table: cfg.Table, Name: "wake"},
	}
}

// Register adds the queue's observer. Its table is made when the node opens; that of the
// results is the application's, as by Registry.Table.
func (q *Queue[V]) Register(r *percolator.Registry, opts ...percolator.ObserverOption) {
	r.Weak(q.cfg.Name, q.wake, q.Drain, opts...)
}

// Add adds an update of the key to the transaction. It conflicts with nothing.
func (q *Queue[V]) Add(tx *percolator.Tx, key string, update V) {
	bucket := q.bucket(key)
	// The time puts what came first in front; the number makes the row the update's own.
	row := tuple.Pack(bucket, tx.StartTS(), rand.Uint64(), key)
	q.update.Set(tx, row, update)
	tx.Notify(tuple.Pack(bucket, slice(tx.StartTS())), q.wake)
}

// Get returns the value of the key with the updates that wait added to it, as the snapshot
// of r has both. It reads all updates that wait in the key's bucket.
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
	_, _ = h.Write([]byte(key)) // a hash takes everything
	return h.Sum64() % uint64(q.cfg.Buckets)
}

// updates are those of one bucket that wait.
type updates[V any] struct {
	rows []string       // where they are
	keys []string       // those that they are of, in the order in which they were met
	of   map[string][]V // by key
}

// sliceBits are the bits of a timestamp that are not of its slice: 18 of its counter, and
// 256 ms.
const sliceBits = 18 + 8

// slice is the part of a bucket in which the updates of a transaction are.
func slice(start percolator.Timestamp) uint64 { return uint64(start) >> sliceBits }

// waiting reads updates, the oldest first.
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

// Drain is the observer of Column, for programs that register it by themselves. Two runs for
// a slice of a bucket delete the same rows, and two for a bucket write the same results, so
// that one of them commits. A value that cannot be decoded parks its slice's notification.
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

// Counter returns a queue that adds numbers up: the value of a key is the sum of what was
// added, and is deleted when that is zero.
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
