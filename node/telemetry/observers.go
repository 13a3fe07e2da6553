package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/percolator-go/percolator/actors/observer"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/wire"
)

// What this node has done for an observer, and the state of its runs: atomic counters of the
// dispatcher, for the observers that this program links. A node without observers, or without
// workers for them, has none of these series. The sum over all nodes is the cluster's.
var observerTable = table[*pb.ObserverStatus]{
	counter("observer_runs_total", "Calls of the observer's function.",
		(*pb.ObserverStatus).GetRuns, "observer"),
	counter("observer_commits_total", "Runs that committed.", (*pb.ObserverStatus).GetCommits, "observer"),
	counter("observer_conflicts_total", "Runs that conflicted.", (*pb.ObserverStatus).GetConflicts, "observer"),
	counter("observer_unavailable_total", "Runs that failed because a node did not answer.",
		(*pb.ObserverStatus).GetUnavailable, "observer"),
	counter("observer_failures_total", "Runs that failed.", (*pb.ObserverStatus).GetFailures, "observer"),
	counter("observer_parked_total", "Notifications parked.", (*pb.ObserverStatus).GetParked, "observer"),
	counter("observer_skipped_total", "Notifications found clean.",
		(*pb.ObserverStatus).GetSkipped, "observer"),
	counter("observer_collapsed_total", "Notifications covered by the run of another one.",
		(*pb.ObserverStatus).GetCollapsed, "observer"),
	gauge("observer_running", "Runs in flight.", (*pb.ObserverStatus).GetRunning, "observer"),
	gauge("observer_queued", "Cells that wait for a slot.", (*pb.ObserverStatus).GetQueued, "observer"),
	gauge("observer_backoff", "Cells that wait for their backoff.",
		(*pb.ObserverStatus).GetWaiting, "observer"),
	gauge("observer_stuck", "Runs whose function ignores the end of its context.",
		(*pb.ObserverStatus).GetStuck, "observer"),
	gauge("observer_contended", "Cells whose runs keep losing conflicts.",
		(*pb.ObserverStatus).GetContended, "observer"),
	gauge("observer_unserved", "Cells whose runs keep failing because something is unavailable.",
		(*pb.ObserverStatus).GetUnserved, "observer"),
	counter("observer_refused_total", "Runs repeated because an external service refused them.",
		(*pb.ObserverStatus).GetRefused, "observer"),
	gauge("observer_outside_wait_seconds",
		"Time since an external service first refused the observer's runs; 0 unless it waits.",
		func(o *pb.ObserverStatus) float64 { return float64(o.Outside.GetWaitedMs()) / 1000 }, "observer"),
	gauge("observer_limit", "Limit on concurrent runs in force on this node.",
		(*pb.ObserverStatus).GetLimit, "observer"),
}

// The status carries no histograms, so that these are read from the dispatcher again: they may
// be some runs ahead of the counters above.
var runTable = table[observer.Stats]{
	histogram("observer_run_seconds",
		"Time of a run, from the call of the observer's function to its end.",
		func(s observer.Stats) metrics.Histogram { return s.Took }, "observer"),
	histogram("observer_delay_seconds",
		"Time from the commit of a change to the start of the run for it.",
		func(s observer.Stats) metrics.Histogram { return s.Latency }, "observer"),
	histogram("observer_batch_changes",
		"Changes per call of the observer's function; 1 unless it accepts batches.",
		func(s observer.Stats) metrics.Histogram { return s.Sizes }, "observer"),
	counter("observer_batch_splits_total",
		"Batches that failed and were run again in smaller ones.",
		func(s observer.Stats) uint64 { return s.Divided }, "observer"),
}

// Workers outside of nodes, in Go or by a gateway. Each reports to one node, which counts from its
// first report on. The sum over all nodes is that of all workers, and observerTable does not
// contain it.
var (
	workersReporting = gauge("worker_sessions", "Workers that report their figures to this node.", the[int])
	workerTable      = table[*pb.ObserverStatus]{
		counter("worker_runs_total", "Calls of the observer's function in workers that report to this node.",
			(*pb.ObserverStatus).GetRuns, "observer"),
		counter("worker_failures_total", "Runs that failed in workers that report to this node.",
			(*pb.ObserverStatus).GetFailures, "observer"),
		counter("worker_run_seconds_total", "Total time of the runs in workers that report to this node.",
			func(o *pb.ObserverStatus) float64 { return float64(o.GetRunUs()) / 1e6 }, "observer"),
	}
)

// state is the cluster-wide state of an observer, as of the last answer.
//
// Each node reads it, so all nodes export the same figures: take their maximum rather than their
// sum. They are the most expensive figures of a scrape: requests to meta, and one to the leader of
// every tablet, which counts its notification index.
type state struct {
	*pb.ObserverState
	oldest time.Duration
}

var (
	statesAge = gauge("observer_figures_age_seconds",
		"Age of the figures of waiting notifications. It grows while meta or a tablet has no quorum.",
		time.Duration.Seconds)
	stateTable = table[state]{
		gauge("observer_pending", "Notifications that wait or run, without parked ones.",
			state.GetNotifications, "observer"),
		gauge("observer_parked", "Notifications that are parked.", state.GetParked, "observer"),
		gauge("observer_oldest_seconds",
			"Age of the oldest notification that is not parked; 0 without one.",
			func(s state) float64 { return s.oldest.Seconds() }, "observer"),
		gauge("observer_paused", "1 while the observer is paused.",
			func(s state) float64 { return oneIf(s.GetInfo().GetPaused()) }, "observer"),
	}
	backfillTable = table[*pb.Backfill]{
		gauge("observer_backfill_rows", "Rows that the last back-fill of the observer has marked.",
			(*pb.Backfill).GetRows, "observer"),
		gauge("observer_backfill_running", "1 while a back-fill of the observer has rows left.",
			func(b *pb.Backfill) float64 { return oneIf(wire.BackfillRuns(b)) }, "observer"),
	}
)

// collectObservers exports this node's counters of observers and their cluster-wide state, for
// which it may wait a second.
func (e *Exporter) collectObservers(out chan<- prometheus.Metric, here []*pb.ObserverStatus) {
	for _, o := range here {
		observerTable.send(out, o, o.Name)
	}
	for _, s := range e.Observers.Stats() {
		runTable.send(out, s, s.Name)
	}
	runs, reporting := e.Observers.WorkerRuns()
	workersReporting(out, reporting)
	for _, o := range runs {
		workerTable.send(out, o, o.GetName())
	}
	states, age, ok := e.Observers.States()
	if ok {
		statesAge(out, age)
	}
	for _, o := range states {
		name := o.GetInfo().GetName()
		stateTable.send(out, state{o, e.age(o.OldestTs)}, name)
		if o.Backfill != nil {
			backfillTable.send(out, o.Backfill, name)
		}
	}
}
