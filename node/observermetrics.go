package node

import (
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/exposition"
	"github.com/percolator-go/percolator/internal/wire"
)

// What this node has done for an observer, and the state of its runs. These are atomic
// counters of the dispatcher, for the observers that this program links; a node without
// observers, or without workers for them, has none of these series. A sum over all nodes
// is what the cluster has done.
var (
	observerRuns = counterFamily("observer_runs_total", "Calls of the observer's function.",
		"observer")
	observerCommits = counterFamily("observer_commits_total", "Runs that committed.",
		"observer")
	observerConflicts = counterFamily("observer_conflicts_total", "Runs that conflicted.",
		"observer")
	observerUnavailable = counterFamily("observer_unavailable_total",
		"Runs that a node's silence ended.", "observer")
	observerFailures = counterFamily("observer_failures_total", "Runs that failed.", "observer")
	observerGivenUp  = counterFamily("observer_parked_total", "Notifications given up.",
		"observer")
	observerSkipped = counterFamily("observer_skipped_total", "Notifications found clean.",
		"observer")
	observerCollapsed = counterFamily("observer_collapsed_total",
		"Notifications that another one's run covered.", "observer")
	observerRunning = gaugeFamily("observer_running", "Runs going on.", "observer")
	observerQueued  = gaugeFamily("observer_queued", "Cells that wait for a slot.", "observer")
	observerBackoff = gaugeFamily("observer_backoff", "Cells that wait for their backoff.",
		"observer")
	observerStuck = gaugeFamily("observer_stuck",
		"Runs whose function ignores the end of its context.", "observer")
	observerContended = gaugeFamily("observer_contended",
		"Cells whose runs come to nothing again and again, mostly by conflicts.", "observer")
	observerUnserved = gaugeFamily("observer_unserved",
		"Cells whose runs come to nothing again and again, mostly because something is unavailable.",
		"observer")
	observerSeconds = histogramFamily("observer_run_seconds",
		"Time of a run, from the call of the observer's function to its end.", "observer")
	observerDelay = histogramFamily("observer_delay_seconds",
		"Time from the commit of a change to the start of the run for it.", "observer")
	observerBatch = histogramFamily("observer_batch_changes",
		"Changes that a call of the observer's function was for; 1 unless it takes batches.",
		"observer")
	observerDivided = counterFamily("observer_divided_total",
		"Batches that came to nothing, and were run for again in halves.", "observer")
	observerLimit = gaugeFamily("observer_limit", "Most runs at once, in force here.", "observer")
)

// What the whole cluster says of an observer; while it can't be asked, what it said last.
//
// Each node asks for itself, so every node exports the same figures: take their maximum,
// not their sum. They cost the most of all that a scrape reads: questions to meta, and
// one to the leader of every tablet, which counts its notification index.
var (
	observerAge = gaugeFamily("observer_figures_age_seconds",
		"Age of the figures of what waits for observers: they can't be had while meta, or a tablet, has no quorum.")
	observerPending = gaugeFamily("observer_pending",
		"Notifications that wait or run, parked ones not among them.", "observer")
	observerParked = gaugeFamily("observer_parked", "Notifications that are parked.", "observer")
	observerOldest = gaugeFamily("observer_oldest_seconds",
		"Age of the oldest notification that is not parked; 0: there is none.", "observer")
	observerPaused = gaugeFamily("observer_paused", "1 while the observer is paused.", "observer")
	backfillRows   = gaugeFamily("observer_backfill_rows",
		"Rows that the observer's last back-fill has marked.", "observer")
	backfillRunning = gaugeFamily("observer_backfill_running",
		"1 while a back-fill of the observer has rows left.", "observer")
)

// collectObservers exports what this node does for observers, and what the cluster says
// of them, for which it may wait a second.
func (m exporter) collectObservers(out chan<- prometheus.Metric, here []*pb.ObserverStatus) {
	for _, o := range here {
		send(out, observerRuns, o.Runs, o.Name)
		send(out, observerCommits, o.Commits, o.Name)
		send(out, observerConflicts, o.Conflicts, o.Name)
		send(out, observerUnavailable, o.Unavailable, o.Name)
		send(out, observerFailures, o.Failures, o.Name)
		send(out, observerGivenUp, o.Parked, o.Name)
		send(out, observerSkipped, o.Skipped, o.Name)
		send(out, observerCollapsed, o.Collapsed, o.Name)
		send(out, observerRunning, o.Running, o.Name)
		send(out, observerQueued, o.Queued, o.Name)
		send(out, observerBackoff, o.Waiting, o.Name)
		send(out, observerStuck, o.Stuck, o.Name)
		send(out, observerContended, o.Contended, o.Name)
		send(out, observerUnserved, o.Unserved, o.Name)
		send(out, observerLimit, o.Limit, o.Name)
	}
	// The status carries no histograms, so the dispatcher is read again: these may be
	// some runs ahead of the counters above.
	for _, s := range m.observers.Stats() {
		exposition.SendHistogram(out, observerSeconds, s.Took, s.Name)
		exposition.SendHistogram(out, observerDelay, s.Latency, s.Name)
		exposition.SendHistogram(out, observerBatch, s.Sizes, s.Name)
		send(out, observerDivided, s.Divided, s.Name)
	}
	// Not ok: nobody has answered since the start. Then there are no states either.
	states, age, ok := m.observers.States()
	if ok {
		send(out, observerAge, age.Seconds())
	}
	for _, o := range states {
		name := o.GetInfo().GetName()
		send(out, observerPending, o.Notifications, name)
		send(out, observerParked, o.Parked, name)
		send(out, observerOldest, m.age(o.OldestTs).Seconds(), name)
		send(out, observerPaused, oneIf(o.GetInfo().GetPaused()), name)
		// nil: there is no record of a back-fill of this observer.
		if b := o.Backfill; b != nil {
			send(out, backfillRows, b.Rows, name)
			send(out, backfillRunning, oneIf(wire.BackfillRuns(b)), name)
		}
	}
}
