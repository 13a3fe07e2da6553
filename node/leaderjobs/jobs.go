package leaderjobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/archiver"
	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/collector"
	"github.com/percolator-go/percolator/actors/expirer"
	"github.com/percolator-go/percolator/actors/merger"
	"github.com/percolator-go/percolator/actors/oracle"
	"github.com/percolator-go/percolator/actors/placement"
	"github.com/percolator-go/percolator/actors/splitter"
	"github.com/percolator-go/percolator/actors/timers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/version"
	"github.com/percolator-go/percolator/node/config"
)

// job is background work of the node that leads meta; each job is a separate actor. Two nodes may
// run the same job for a moment when the leadership changes, so jobs change meta only by
// conditional writes.
type job interface {
	// Stop ends the job and waits for it until ctx ends.
	Stop(ctx context.Context) error
}

// Config configures Jobs. All fields are required.
type Config struct {
	// Node is the configuration of the node. The policy of the cluster overrides parts of it.
	Node    config.Config
	System  *actor.ActorSystem
	Meta    *meta.Meta
	Client  *txn.Client
	Send    route.Sender
	Members cluster.Members
	Policy  *cluster.PolicyView
	Gate    *version.Gate
	// Status returns the status of a node, this one or another; for leading see
	// NodeStatusRequest. It bounds the wait.
	Status func(ctx context.Context, node uint64, leading bool) (*pb.NodeStatusResponse, error)
	// Now returns the time by the oracle's clock.
	Now func() time.Time
}

// Jobs are the jobs that run while this node leads meta: placement, collection of history, splits,
// merges, back-fills, timers, backups and expiry. It owns the set of running jobs and their policy.
// One goroutine calls Follow and End, which wait for jobs; any goroutine may wake a job or read its
// status. A job that did not end in time may still be in its turn after the node has lost the
// leadership; until it ends no other job starts.
type Jobs struct {
	cfg      Config
	statuses *StatusCache
	clocks   oracle.Offsets // as placement has measured them
	timers   timers.Stats   // of all timers jobs of the process
	expired  expirer.Stats  // of all expirers of the process

	// Owned by the worker of changes.
	started bool
	running []job      // including those that were stopped and have not ended
	policy  *pb.Policy // with which the running jobs were started

	// The jobs that run here; nil for those that do not. Any goroutine reads them.
	backfills atomic.Pointer[backfill.Job]
	collector atomic.Pointer[collector.Collector]
	placement atomic.Pointer[placement.Placement]
	splitter  atomic.Pointer[splitter.Splitter]
	merger    atomic.Pointer[merger.Merger]
	archiver  atomic.Pointer[archiver.Job]
	expirer   atomic.Pointer[expirer.Job]
}

// New returns Jobs of which none runs.
func New(cfg Config) *Jobs {
	return &Jobs{cfg: cfg, statuses: &StatusCache{members: cfg.Members, status: cfg.Status, now: cfg.Now}}
}

// Statuses returns the cache of the statuses that the jobs read.
func (l *Jobs) Statuses() *StatusCache { return l.statuses }

// startBackfills starts the job that marks existing rows for new observers and removes
// retired observers. It must not wait until this node's observers are registered: one
// that was retired, and is linked again, can register only after its removal.
func (l *Jobs) startBackfills() error {
	j, err := backfill.Spawn(l.cfg.System, backfill.Config{
		Meta: struct {
			*meta.Observers
			*meta.BackfillRecords
		}{l.cfg.Meta.Observers, l.cfg.Meta.Backfills},
		Client: l.cfg.Client, Logger: l.cfg.Node.Logger,
	})
	return began(l, &l.backfills, j, "the back-fills", err)
}

// jobsTimeout bounds the wait for jobs that end because the leadership has gone, the
// policy has changed, or one of them could not be started. lateJobsTimeout bounds each later wait
// for jobs that have not ended by then.
const (
	jobsTimeout     = 10 * time.Second
	lateJobsTimeout = time.Second
)

// policyTimeout bounds one attempt to read the policy.
const policyTimeout = 2 * time.Second

// Follow starts the jobs when this node starts to lead meta and stops them when it no longer does.
// After a change of the cluster's policy it restarts them. Errors are logged; the next call retries
// failed starts.
func (l *Jobs) Follow(ctx context.Context, leads bool) {
	changed := l.started && l.policy.GetVersion() != l.cfg.Policy.Now().GetVersion()
	if ctx.Err() != nil || leads == l.started && !changed {
		return
	}
	// A job keeps the policy with which it was started, so a change of the policy ends all jobs. No
	// job starts before all earlier ones have ended.
	if len(l.running) > 0 {
		timeout := jobsTimeout
		if !l.started {
			timeout = lateJobsTimeout
		}
		ending, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := l.End(ending); err != nil {
			l.cfg.Node.Logger.Error("the jobs of meta's leader did not stop in time; no others start before they have",
				"error", err)
			return
		}
	}
	if !leads {
		return
	}
	// start reads the policy first, and waits for meta up to policyTimeout.
	if err := l.start(ctx); err != nil {
		l.cfg.Node.Logger.Error("the jobs of meta's leader could not be started, will retry",
			"error", err)
		return
	}
	l.started = true
}

// start starts all jobs with the current policy. If one fails, it stops those already started. On
// the first call the node's observers and listeners may not run yet.
func (l *Jobs) start(ctx context.Context) (err error) {
	reading, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	if l.policy, err = l.cfg.Policy.Found(reading); err != nil {
		return err
	}
	// Every start is tried, so that the log names all jobs that cannot start. The start of a job
	// that the policy or the configuration forbids does nothing and returns nil.
	err = errors.Join(l.startBackfills(), l.startCollector(), l.startSplitter(), l.startMerger(),
		l.startPlacement(), l.startTimers(), l.startArchiver(), l.startExpirer())
	if err != nil {
		// Not under ctx, whose end may be the error.
		ctx, cancel := context.WithTimeout(context.Background(), jobsTimeout)
		defer cancel()
		return errors.Join(err, l.End(ctx))
	}
	return nil
}

// began adds the started job j to running and stores it in at. If the start failed with err, it
// returns that error instead, with the job's name.
func began[J any, P interface {
	*J
	job
}](l *Jobs, at *atomic.Pointer[J], j P, name string, err error) error {
	if err != nil {
		return fmt.Errorf("leaderjobs: start %s: %w", name, err)
	}
	l.running = append(l.running, j)
	at.Store(j)
	return nil
}

// End stops the jobs, last started first. Those that have not ended by the end of ctx
// stay in running. Only the worker calls it, or Drain after the worker has ended.
func (l *Jobs) End(ctx context.Context) error {
	l.backfills.Store(nil)
	l.collector.Store(nil)
	l.placement.Store(nil)
	l.splitter.Store(nil)
	l.merger.Store(nil)
	l.archiver.Store(nil)
	l.expirer.Store(nil)
	l.started = false
	var late []job
	var errs []error
	for _, j := range slices.Backward(l.running) {
		if err := j.Stop(ctx); err != nil {
			late, errs = append(late, j), append(errs, err)
		}
	}
	l.running = late
	l.timers.Pending.Store(0) // the last turn may have set it after the job was stopped
	return errors.Join(errs...)
}

// WakeBackfills makes the back-fills look for work at once, if they run here.
func (l *Jobs) WakeBackfills() {
	if j := l.backfills.Load(); j != nil {
		j.Wake()
	}
}

// Collection returns the collector's status; nil if it does not run here.
func (l *Jobs) Collection() *pb.HistoryStatus {
	if j := l.collector.Load(); j != nil {
		return j.Status()
	}
	return nil
}
