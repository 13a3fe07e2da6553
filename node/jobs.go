package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/percolator-go/percolator/actors/backfill"
	"github.com/percolator-go/percolator/actors/collector"
	"github.com/percolator-go/percolator/actors/placement"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
)

// job is work that the node that leads meta does in the background, an actor of its own each. Two nodes may do it at once
// for a moment, when the leadership changes: all of it goes by conditional writes.
type job interface {
	// Stop ends it and waits, as far as ctx allows.
	Stop(ctx context.Context) error
}

// leaderJobs are the jobs, which run while this node leads meta.
type leaderJobs struct {
	n *Node

	mu        sync.Mutex
	running   []job
	started   bool
	backfills *backfill.Job
	collector *collector.Collector // nil: history is not collected from here
	placement *placement.Placement // nil: replicas are not placed from here
}

// jobsTimeout bounds the end of the jobs when the leadership has gone.
const jobsTimeout = 10 * time.Second

// follow starts or stops the jobs as this node has come to lead meta or does so no more.
func (l *leaderJobs) follow(ctx context.Context, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leads == l.started || ctx.Err() != nil {
		return
	}
	if leads {
		if err := l.start(); err != nil {
			l.n.cfg.Logger.Error("the jobs of meta's leader could not be started; they are tried again", "error", err)
			return
		}
		l.started = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, jobsTimeout)
	defer cancel()
	if err := l.end(ctx); err != nil {
		l.n.cfg.Logger.Error("the jobs of meta's leader did not end in time", "error", err)
	}
}

// start starts them all; those that did are stopped again if one does not. They may rely on everything but observers and
// listeners.
func (l *leaderJobs) start() error {
	err := errors.Join(l.startBackfills(), l.startCollector(), l.startSplitter(), l.startPlacement())
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), jobsTimeout)
		defer cancel()
		return errors.Join(err, l.end(ctx))
	}
	return nil
}

// end stops them, last started first. The caller holds mu.
func (l *leaderJobs) end(ctx context.Context) error {
	var errs []error
	for i := len(l.running) - 1; i >= 0; i-- {
		errs = append(errs, l.running[i].Stop(ctx))
	}
	l.running, l.backfills, l.collector, l.placement, l.started = nil, nil, nil, nil, false
	return errors.Join(errs...)
}

func (l *leaderJobs) stop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end(ctx)
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

// leadsMeta asks this node's replica of meta whether it leads.
func (n *Node) leadsMeta(ctx context.Context) bool {
	port := n.router.Port(cluster.MetaTablet)
	if port == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := port.Ask(ctx, &pb.TabletRequest{Op: &pb.TabletRequest_Status{Status: &pb.StatusRequest{}}}, true)
	return err == nil && r.GetStatus().GetLeader()
}
