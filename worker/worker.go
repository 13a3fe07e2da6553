package worker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/actors/observer"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/tracing"
	"github.com/percolator-go/percolator/internal/txn"
	inner "github.com/percolator-go/percolator/internal/worker"
)

// Defaults of Config.
const (
	DefaultWorkers      = 128
	DefaultDrainTimeout = 30 * time.Second
)

// Config configures a worker. Its zero value is not complete: Client needs Insecure or certificates.
type Config struct {
	// Client configures the connections. The certificate needs the role observer, and grants to
	// write to the observed tables if these are restricted.
	Client percolator.ClientConfig
	// Workers is the number of concurrent runs in this process. Defaults to 128.
	Workers int
	// Queue is the maximum number of changes that one node has handed to this process and that
	// have not run yet. Defaults to 4096.
	Queue int
	// DrainTimeout bounds the wait for running observers once the context of Run has ended.
	// Defaults to 30 s.
	DrainTimeout time.Duration
	// LoopRuns is the number of runs of one row within 10 s, each caused by the last, after which
	// the next ones wait with growing pauses. Defaults to 100; negative disables it.
	LoopRuns int
	// Ready, if not nil, is called once, when the first node has accepted the observers.
	Ready func()
}

// Run runs the observers that register registers until ctx ends. addrs are nodes as for
// percolator.Dial; the worker finds the others itself. After a node has accepted the worker, Run
// retries without limit while it reaches none.
//
// Run first creates the tables and split keys that the cluster lacks. When ctx ends it accepts no
// further changes, waits for its runs, and returns nil, or an error that names what was still
// running after DrainTimeout. It returns an error earlier if the registration is invalid, if no
// node answers within 10 s or accepts the observers within 15 s, or if the cluster refuses the
// worker: for its role, for its grants, or because the cluster has an observer of the same name
// with another column or kind (strong or weak).
func Run(ctx context.Context, addrs []string, register func(*percolator.Registry), cfg Config) error {
	registry := percolator.NewRegistry()
	register(registry)
	if err := registry.Err(); err != nil {
		return err
	}
	if len(registry.Observers()) == 0 {
		return fmt.Errorf("worker: no observer is registered: %w", percolator.ErrInvalid)
	}
	c := cfg.Client
	c.Logger = cmp.Or(c.Logger, slog.Default())
	transport, err := rpc.Dial(ctx, addrs, rpc.ClientConfig{
		Insecure: c.Insecure, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile, TLS: c.TLS,
		Batch: rpc.BatchConfig(c.Batch), Logger: c.Logger, Proxy: c.Proxy, Works: true,
	})
	if err != nil {
		return txn.MarkRefusal(err)
	}
	tracer := tracing.New(c.TracerProvider)
	return inner.Run(ctx, transport, registry, inner.Config{
		Workers: cmp.Or(cfg.Workers, DefaultWorkers), Queue: cmp.Or(cfg.Queue, observer.DefaultQueue),
		DrainTimeout: cmp.Or(cfg.DrainTimeout, DefaultDrainTimeout), LoopRuns: cfg.LoopRuns,
		Client: txn.Config{LockTTL: c.LockTTL, Logger: c.Logger, Tracer: tracer},
		Traces: tracing.NewBook(tracer), Ready: cfg.Ready,
	})
}
