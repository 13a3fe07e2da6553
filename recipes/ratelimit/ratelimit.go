// Package ratelimit limits the rate of an operation in the whole cluster with token buckets:
// each key has a bucket of tokens that refills at a constant rate, and each operation takes
// some of them.
//
// An observer that calls an external service takes tokens by Acquire, before the call and in a
// transaction of its own: a call cannot be undone, so its token must stay taken even if the run's
// transaction conflicts and the run is repeated. Take takes tokens in the caller's transaction,
// for a limit on what transactions write.
//
// A bucket is a cell that a transaction reads and writes. Its clock is the transaction's start
// timestamp; the clocks of nodes do not matter. Transactions that take from the same bucket
// conflict. For a hot key, set Shards: each shard has a part of the tokens, which makes the limit
// less exact, since a caller may be refused while other shards have tokens left.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Limit is a rate limit per key. It is stateless, and its methods are safe for concurrent use.
type Limit struct {
	cfg    Config
	bucket percolator.TypedColumn[bucket]
}

// Config configures a Limit.
type Config struct {
	Table string        // table of the buckets
	Every time.Duration // time in which one token returns to a key that lacks some
	Burst int           // tokens of a full key, over all its Shards
	// Shards is the number of buckets per key, which share Burst and the rate. Defaults to 1.
	Shards int
}

// bucket is the number of tokens at a time.
type bucket struct {
	Tokens float64 `json:"tokens"`
	At     int64   `json:"at_unix_ns"`
}

// New returns a Limit. It panics with percolator.ErrInvalid if cfg is invalid, for example if
// Burst is less than Shards, so that no shard has a whole token.
func New(cfg Config) *Limit {
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Table == "" || cfg.Every <= 0 || cfg.Shards < 1 || cfg.Burst < cfg.Shards {
		panic(fmt.Errorf("%w: rate limit in table %q: Table is required, Every (%v) must be positive, "+
			"and Burst (%d) at least Shards (%d), which must be positive",
			percolator.ErrInvalid, cfg.Table, cfg.Every, cfg.Burst, cfg.Shards))
	}
	col := percolator.Column{Table: cfg.Table, Name: "bucket"}
	return &Limit{cfg: cfg, bucket: percolator.Typed(col, percolator.JSON[bucket]())}
}

// Register registers the table of the buckets.
func (l *Limit) Register(r *percolator.Registry) {
	r.Table(percolator.TableSpec{Name: l.cfg.Table})
}

// Errors of Acquire.
var (
	// ErrLimited reports that the bucket has not enough tokens.
	ErrLimited = errors.New("ratelimit: not enough tokens")
	// ErrNoDatabase is returned outside an observer's run.
	ErrNoDatabase = errors.New("ratelimit: the context is not of an observer's run: " +
		"pass the one that the observer's function received")
)

// Acquire takes n tokens of the key in a transaction of its own, within an observer's run. If
// there are not enough, it takes none and returns ErrLimited as a percolator.RetryAfterError with
// the time until there are: an observer that returns it waits for them on all nodes, and its
// batch stays together. An observer with many keys, which must not wait for one of them, postpones
// the row instead, as by Tx.NotifyAfter for the error's Wait.
//
// Tokens stay taken if the run fails afterwards. Acquire returns percolator.ErrInvalid if n is
// negative or exceeds the capacity of a bucket.
func (l *Limit) Acquire(ctx context.Context, key string, n int) error {
	db := percolator.DBFrom(ctx)
	if db == nil {
		return ErrNoDatabase
	}
	var wait time.Duration
	err := db.Transact(ctx, func(ctx context.Context, tx *percolator.Tx) (err error) {
		wait, err = l.Take(ctx, tx, key, n)
		return err
	})
	if err != nil || wait == 0 {
		return err
	}
	return percolator.RetryAfter(fmt.Errorf("%w of %q", ErrLimited, key), wait)
}

// Take takes n tokens of the key, if the transaction commits, and returns 0. If there are not
// enough tokens, it takes none and returns the time after which to retry. Take returns
// percolator.ErrInvalid if n is negative or exceeds the capacity of a bucket.
//
// Do not call an external service in the same transaction: if the transaction conflicts, it calls
// again, but its tokens are taken only once. Use Acquire.
func (l *Limit) Take(ctx context.Context, tx *percolator.Tx, key string,
	n int) (wait time.Duration, err error) {
	most := float64(l.cfg.Burst) / float64(l.cfg.Shards)
	if n < 0 || float64(n) > most {
		return 0, fmt.Errorf("%w: ratelimit: %d tokens of %q requested; must be between 0 and %v, the capacity of a bucket", percolator.ErrInvalid,
			n, key, most)
	}
	row := tuple.Pack(key, rand.IntN(l.cfg.Shards))
	b, ok, err := l.bucket.Get(ctx, tx, row)
	if err != nil {
		return 0, err
	}
	now := tx.StartTS().Time().UnixNano()
	if !ok {
		b = bucket{Tokens: most, At: now}
	}
	every := float64(l.cfg.Every) * float64(l.cfg.Shards) // per token of this bucket
	// The oracle's time never goes back, so now-b.At is not negative.
	have := min(most, b.Tokens+float64(now-b.At)/every)
	if lacks := float64(n) - have; lacks > 0 {
		return time.Duration(math.Ceil(lacks * every)), nil
	}
	l.bucket.Set(tx, row, bucket{Tokens: have - float64(n), At: now})
	return 0, nil
}
