// Package ablation measures what batching, coalescing, caching and prefetching contribute (§2.5), by
// switching each off, and throughput and latency as functions of the limits of a batch. Its results are the
// basis of docs/operating/tuning-mailboxes.md and of the defaults.
package ablation

import (
	"context"
	"errors"
	"os"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/bench/evaluation/harness"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node"
	"github.com/percolator-go/percolator/node/config"
)

// Measurements returns this package's measurements.
func Measurements() []harness.Measurement {
	return []harness.Measurement{{
		Name: "ablation", Title: "Batching and prefetching, switched off (§2.5)", Budget: 4 * time.Minute, Run: run,
	}}
}

func run(ctx context.Context, r *harness.Run) error {
	for round := range r.Rounds {
		for _, measure := range []func(context.Context, *harness.Run, int) error{mechanisms, limits} {
			if err := measure(ctx, r, round); err != nil {
				return err
			}
		}
	}
	r.Note("Not switched off: the one log and one sync for all tablets of a node, the batches of requests for " +
		"timestamps (one request at a time for a process), and the prefetching of the rows for which an observer runs, " +
		"which transactions of clients do not have.")
	return nil
}

// setup is a node and a client, as a variant configures them.
type setup struct {
	batch  config.Batch
	client txn.Config
}

// repository is a node in this process with a client that reaches it over a socket.
type repository struct {
	node   *node.Node
	client *txn.Client
	db     *percolator.DB // the client's
}

// with calls fn with a node on an empty store.
func with(ctx context.Context, r *harness.Run, s setup, fn func(repo *repository) error) (err error) {
	dir, err := os.MkdirTemp(r.Dir, "ablation-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Listen, cfg.HTTP, cfg.Insecure, cfg.Batch = dir, "127.0.0.1:0", "", true, s.batch
	n, err := node.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close(context.WithoutCancel(ctx))) }()
	transport, err := rpc.Dial(ctx, []string{n.Addr()}, rpc.ClientConfig{
		Insecure: true, Batch: rpc.BatchConfig(s.batch.Client), Logger: slogDiscard,
	})
	if err != nil {
		return err
	}
	client := txn.NewClient(transport, s.client)
	defer func() { err = errors.Join(err, client.Close()) }()
	return fn(&repository{node: n, client: client, db: handle.NewDB(client)})
}

// usage holds counters of a repository.
type usage struct {
	operations, batches, syncs uint64
	cpu                        time.Duration
}

// used returns the operations that the client has sent to tablets, the batches in which tablets have
// handled them, the synced writes of the log, and the processor time of this process.
func (repo *repository) used() usage {
	u := usage{cpu: harness.CPUOf()}
	for _, count := range repo.client.Stats().Messages {
		u.operations += count
	}
	status := repo.node.Status()
	for _, t := range status.Tablets {
		u.batches += t.Batches
	}
	u.syncs = status.LogBatches
	return u
}
