package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/bench/turns"
)

// A transaction that reads a key and writes it if it has not changed since, beside etcd: both in this
// process, without a network.

// keysPerCaller is the number of keys that each caller uses in turn. No two callers share a key, so
// that transactions do not conflict.
const keysPerCaller = 20

// subject is an open store.
type subject interface {
	// transact reads the key and writes it if it has not changed since.
	transact(ctx context.Context, key string) error
	close(ctx context.Context) error
}

// kind is a store to measure.
type kind struct {
	name string
	open func(ctx context.Context, dir string) (subject, error)
}

var kinds = []kind{
	{"etcd, serializable get", func(ctx context.Context, dir string) (subject, error) {
		return openEtcd(ctx, dir, true)
	}},
	{"etcd, linearizable get", func(ctx context.Context, dir string) (subject, error) {
		return openEtcd(ctx, dir, false)
	}},
	{ours, openPercolator},
}

const etcdTable = "get, then put if unchanged"

func runEtcd(ctx context.Context, r *harness.Run) error {
	callers, d := 64, 3*time.Second
	if r.Smoke {
		callers, d = 8, 200*time.Millisecond
	}
	for range r.Rounds {
		rates := map[string]float64{}
		for _, k := range kinds {
			f, err := measureStore(ctx, r, k, callers, d)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			rates[k.name] = f.PerSecond
			r.Value(etcdTable, k.name, "/s", f.PerSecond)
			r.Value(etcdTable, k.name, "ms p50", f.Millis(0.5)[0])
			r.Value(etcdTable, k.name, "ms p99", f.Millis(0.99)[0])
			r.Value(etcdTable, k.name, "µs CPU", float64(f.CPU.Nanoseconds())/1000)
		}
		for _, k := range kinds[:2] {
			r.Ratio(etcdTable, ours+" / "+k.name, rates[ours]/rates[k.name], "≥ 2")
		}
	}
	r.Note("%d callers in this process, %d-byte values; no two callers share a key.", callers, len(payload))
	return nil
}

// measureStore measures one kind on a fresh directory.
func measureStore(ctx context.Context, r *harness.Run, k kind, callers int, d time.Duration) (f turns.Figure, err error) {
	err = harness.InDir(r.Dir, func(dir string) (err error) {
		s, err := k.open(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
		f, err = turns.Repeat(ctx, callers, d/5, d, func(ctx context.Context, caller, i int) error {
			return s.transact(ctx, fmt.Sprintf("k%d/%d", caller, i%keysPerCaller))
		})
		return err
	})
	return f, err
}
