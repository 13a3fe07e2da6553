package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/collector"
	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/meta"
	"github.com/percolator-go/percolator/cluster/route"
	"github.com/percolator-go/percolator/internal/txn"
)

// job is work that the node that leads meta does in the background, an actor of its own
// each. Two nodes may do it at once for a moment, when the leadership changes: all of it
// goes by conditional writes.
type job interface {
	// Stop ends it and waits, as far as ctx allows.
	Stop(ctx context.Context) error
}

// leaderJobs are the jobs, which run while this node leads meta. It owns which of them run,
// and by which policy. The worker of changes starts and ends them, and so waits for them;
// anybody may wake one, or ask how it is.
type leaderJobs struct {
	cfg     Config
	system  *actor.ActorSystem
	meta    *meta.Meta
	client  *txn.Client
	send    route.Sender
	members cluster.Members
	census  *census
	known   *clusterPolicy

	// The worker's own.
	started bool
	policy  *pb.Policy // that the jobs run by

	mu        sync.Mutex // never held while a job is waited for
	running   []job
	backfills *backfill.Job
	collector *collector.Collector // nil: history is not collected from here
	placement *placement.Placement // nil: replicas are not placed from here
}

// startBackfills starts the job that fills for observers and removes retired ones. It
// does not need observers to be registered: one that was retired, and is linked again,
// waits for its removal.
func (l *leaderJobs) startBackfills() error {
	j, err := backfill.Spawn(l.system, backfill.Config{
		Meta: l.meta, Client: l.client, Logger: l.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("node: back-fills: %w", err)
	}
	l.began(j, func() { l.backfills = j })
	return nil
}

// jobsTimeout bounds the end of the jobs when the leadership has gone.
const jobsTimeout = 10 * time.Second

// follow starts or stops the jobs as this node has come to lead meta or does so no more,
// and starts them anew after a change of the cluster's policy.
func (l *leaderJobs) follow(ctx context.Context, leads bool) {
	changed := l.started && l.policy.GetVersion() != l.known.now().GetVersion()
	if ctx.Err() != nil || leads == l.started && !changed {
		return
	}
	if l.started {
		ending, cancel := context.WithTimeout(ctx, jobsTimeout)
		defer cancel()
		if err := l.end(ending); err != nil {
			l.cfg.Logger.Error("the jobs of meta's leader did not end in time", "error", err)
			return
		}
	}
	if !leads {
		return
	}
	if err := l.start(ctx); err != nil {
		l.cfg.Logger.Error("the jobs of meta's leader could not be started; they are tried again",
			"error", err)
		return
	}
	l.started = true
}

// start starts them all, by the policy as it is now; those that did are stopped again if
// one does not. They may rely on everything but observers and listeners.
func (l *leaderJobs) start(ctx context.Context) (err error) {
	reading, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	if l.policy, err = l.known.found(reading); err != nil {
		return err
	}
	err = errors.Join(l.startBackfills(), l.startCollector(), l.startSplitter(), l.startPlacement())
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), jobsTimeout)
		defer cancel()
		return errors.Join(err, l.end(ctx))
	}
	return nil
}

// began takes note of a job that runs.
func (l *leaderJobs) began(j job, note func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = append(l.running, j)
	note()
}

// end stops them, last started first. It is the worker's, or called after the worker's end.
func (l *leaderJobs) end(ctx context.Context) error {
	l.mu.Lock()
	running := l.running
	l.running, l.backfills, l.collector, l.placement = nil, nil, nil, nil
	l.mu.Unlock()
	l.started = false
	var errs []error
	for i := len(running) - 1; i >= 0; i-- {
		errs = append(errs, running[i].Stop(ctx))
	}
	return errors.Join(errs...)
}

// wakeBackfills has the back-fills look at once what is to be done, if they run here.
func (l *leaderJobs) wakeBackfills() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.backfills != nil {
		l.backfills.Wake()
	}
}

// collection is what the collector says of itself; nil if it does not run here.
func (l *leaderJobs) collection() *pb.HistoryStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.collector == nil {
		return nil
	}
	return l.collector.Status()
}
