package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/archiver"
	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/collector"
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
)

// job is background work of the node that leads meta; each job is an actor of its own.
// Two nodes may run the same job for a moment when the leadership changes, so jobs change
// meta only by conditional writes.
type job interface {
	// Stop ends the job and waits for it until ctx ends.
	Stop(ctx context.Context) error
}

// leaderJobs are the jobs that run while this node leads meta: placement, collection of
// history, splits, merges, back-fills, timers and backups. It owns which of them run, and by which policy. The
// worker of changes starts and ends them, and so may wait for them; any goroutine may
// wake one or ask for its status. A job that did not end in time may still be in its turn
// while the node leads no more; none starts beside it.
type leaderJobs struct {
	cfg      Config
	system   *actor.ActorSystem
	meta     *meta.Meta
	client   *txn.Client
	send     route.Sender
	members  cluster.Members
	statuses *statusCache
	known    *cluster.PolicyView
	clocks   oracle.Offsets // as placement has found them, which uses it

	gate   *version.Gate
	timers timers.Stats // of all timers jobs; any goroutine reads

	// The worker's own.
	started bool
	running []job      // also those that were told to end and have not
	policy  *pb.Policy // that the jobs run by

	mu        sync.Mutex
	backfills *backfill.Job        // nil: none runs here
	collector *collector.Collector // nil: history is not collected from here
	placement *placement.Placement // nil: replicas are not placed from here
	splitter  *splitter.Splitter   // nil: tablets are not split from here
	merger    *merger.Merger       // nil: nor merged
	archiver  *archiver.Job        // nil: no backups are made from here
}

// startBackfills starts the job that marks existing rows for new observers and removes
// retired observers. It must not wait until this node's observers are registered: one
// that was retired, and is linked again, can register only after its removal.
func (l *leaderJobs) startBackfills() error {
	j, err := backfill.Spawn(l.system, backfill.Config{
		Meta: struct {
			*meta.Observers
			*meta.BackfillRecords
		}{l.meta.Observers, l.meta.Backfills},
		Client: l.client, Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: back-fills: %w", err)
	}
	l.began(j, func() { l.backfills = j })
	return nil
}

// jobsTimeout bounds the wait for jobs that end because the leadership has gone, the
// policy has changed, or one of them could not be started. lateJobsTimeout bounds it for
// those that have not ended then.
const (
	jobsTimeout     = 10 * time.Second
	lateJobsTimeout = time.Second
)

// policyTimeout bounds one attempt to read the policy.
const policyTimeout = 2 * time.Second

// follow starts the jobs when this node has come to lead meta and ends them when it no
// longer does. After a change of the cluster's policy it restarts them. Errors are
// logged; what could not be started is tried again by the next call.
func (l *leaderJobs) follow(ctx context.Context, leads bool) {
	changed := l.started && l.policy.GetVersion() != l.known.Now().GetVersion()
	if ctx.Err() != nil || leads == l.started && !changed {
		return
	}
	// A job keeps the policy that it was started with, so a change of it ends them all.
	// Those that outlive their term are waited for before the next begins.
	if len(l.running) > 0 {
		timeout := jobsTimeout
		if !l.started {
			timeout = lateJobsTimeout
		}
		ending, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := l.end(ending); err != nil {
			l.cfg.Logger.Error("the jobs of meta's leader did not stop in time; no others start before they have",
				"error", err)
			return
		}
	}
	if !leads {
		return
	}
	// start reads the policy first, and waits for meta up to policyTimeout.
	if err := l.start(ctx); err != nil {
		l.cfg.Logger.Error("the jobs of meta's leader could not be started; it is tried again",
			"error", err)
		return
	}
	l.started = true
}

// start starts all jobs by the policy as it is now. If one fails, those that were started
// are stopped again. When start is first called, the node's observers and listeners may
// not run yet.
func (l *leaderJobs) start(ctx context.Context) (err error) {
	reading, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	if l.policy, err = l.known.Found(reading); err != nil {
		return err
	}
	// All are tried, so that the log names everything that cannot start. One that the
	// policy or the configuration forbids returns nil and does not run.
	err = errors.Join(l.startBackfills(), l.startCollector(), l.startSplitter(), l.startMerger(),
		l.startPlacement(), l.startTimers(), l.startArchiver())
	if err != nil {
		// Not under ctx, which may be what has ended.
		ctx, cancel := context.WithTimeout(context.Background(), jobsTimeout)
		defer cancel()
		return errors.Join(err, l.end(ctx))
	}
	return nil
}

// began records a job that runs. set is called under the lock, to set the job's own
// field.
func (l *leaderJobs) began(j job, set func()) {
	l.running = append(l.running, j)
	l.mu.Lock()
	defer l.mu.Unlock()
	set()
}

// end stops the jobs, last started first. Those that have not ended by the end of ctx
// stay in running. Only the worker calls it, or Drain after the worker has ended.
func (l *leaderJobs) end(ctx context.Context) error {
	l.mu.Lock()
	l.backfills, l.collector, l.placement = nil, nil, nil
	l.splitter, l.merger, l.archiver = nil, nil, nil
	l.mu.Unlock()
	l.started = false
	var late []job
	var errs []error
	for _, j := range slices.Backward(l.running) {
		if err := j.Stop(ctx); err != nil {
			late, errs = append(late, j), append(errs, err)
		}
	}
	l.running = late
	l.timers.Pending.Store(0) // a turn that ended meanwhile has counted once more
	return errors.Join(errs...)
}

// wakeBackfills makes the back-fills look for work at once, if they run here.
func (l *leaderJobs) wakeBackfills() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.backfills != nil {
		l.backfills.Wake()
	}
}

// collection returns the collector's status; nil if it does not run here.
func (l *leaderJobs) collection() *pb.HistoryStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.collector == nil {
		return nil
	}
	return l.collector.Status()
}
