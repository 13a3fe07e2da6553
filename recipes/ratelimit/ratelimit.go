// Package ratelimit bounds how often something is done in the whole cluster, by token
// buckets: a key has so many tokens, which come back at a rate, and whoever does it takes
// some.
//
// A bucket is a cell that a transaction reads and writes, so that what is taken and what is
// done with it commit together or not at all, whatever fails. Its time is the transaction's
// start timestamp, which is the oracle's, so nodes' clocks do not matter. Transactions that
// take from one bucket conflict: a hot key needs Shards, of which each has its part of the
// tokens, and which make the limit less exact: an unlucky caller may be refused while other
// shards have tokens left.
package ratelimit

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/tuple"
)

// Limit is a limit for each of any number of keys. It holds no state, and its methods may
// be called concurrently.
type Limit struct {
	cfg    Config
	bucket percolator.TypedColumn[bucket]
}

// Config says how much is allowed.
type Config struct {
	Table string        // which the application makes, as by Registry.Table
	Every time.Duration // in which one token comes back, to a bucket that lacks some
	Burst int           // tokens of a full bucket
	// Shards are the buckets of each key; default 1. They share Burst and the rate.
	Shards int
}

// bucket is how many tokens there were, and when.
type bucket struct {
	Tokens float64 `json:"tokens"`
	At     int64   `json:"at_unix_ns"`
}

// New returns the limit. It panics with percolator.ErrInvalid if a value makes no sense, a
// fault of the program: more Shards than Burst leave none a whole token.
func New(cfg Config) *Limit {
	if cfg.Shards == 0 {
		cfg.Shards = 1
	}
	if cfg.Table == "" || cfg.Every <= 0 || cfg.Shards < 1 || cfg.Burst < cfg.Shards {
		panic(fmt.Errorf("%w: rate limit in table %q: every %v, burst %d, shards %d",
			percolator.ErrInvalid, cfg.Table, cfg.Every, cfg.Burst, cfg.Shards))
	}
	col := percolator.Column{Table: cfg.Table, Name: "bucket"}
	return &Limit{cfg: cfg, bucket: percolator.Typed(col, percolator.JSON[bucket]())}
}

// Take takes n tokens of the key, if the transaction commits. It returns 0 if it has, else
// after how long to try again: then it has taken none. An observer returns an error that
// wraps percolator.ErrUnavailable to be run again, or asks for it by Tx.NotifyAfter. More
// tokens than a bucket ever has are refused with percolator.ErrInvalid.
func (l *Limit) Take(ctx context.Context, tx *percolator.Tx, key string,
	n int) (wait time.Duration, err error) {
	most := float64(l.cfg.Burst) / float64(l.cfg.Shards)
	if n < 0 || float64(n) > most {
		return 0, fmt.Errorf("%w: ratelimit: %d tokens of %q: a bucket has %v", percolator.ErrInvalid,
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
	every := float64(l.cfg.Every) * float64(l.cfg.Shards) // for one token of this bucket
	// The oracle's time never goes back.
	have := min(most, b.Tokens+float64(now-b.At)/every)
	if lacks := float64(n) - have; lacks > 0 {
		return time.Duration(math.Ceil(lacks * every)), nil
	}
	l.bucket.Set(tx, row, bucket{Tokens: have - float64(n), At: now})
	return 0, nil
}
