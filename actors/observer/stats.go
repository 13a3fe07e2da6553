package observer

import (
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Stats are the statistics of one observer in this process, counted since the dispatcher started.
// Each figure is atomic by itself: two figures of one reading may differ by some events. A batch
// for n changes counts as n runs with their outcomes; Running, Stuck, Limit and Divided count
// batches. The embedded status lacks Rows, which Dispatcher.Status adds.
type Stats struct {
	*pb.ObserverStatus
	// Latency is measured from the change's commit timestamp to the run's start timestamp, both
	// of the oracle's clock.
	Latency metrics.Histogram
	Took    metrics.Histogram // durations of runs, from the call of the function to their end
	Sizes   metrics.Histogram // changes per call of the function
	Divided uint64            // batches that were split, in halves or, if abandoned, in single runs
	Wait    Outside           // the wait for an external service
}

// counters holds the live counters behind Stats.
type counters struct {
	runs, commits, conflicts, unavailable, failures, parked, skipped, collapsed atomic.Uint64
	divided, refused                                                            atomic.Uint64

	queued, waiting, running, stuck, contended, unserved atomic.Int64

	latency, took metrics.Durations
	sizes         metrics.Sizes
}

// started counts a call of the user's function. Both timestamps are the oracle's, so the latency
// is independent of clock skew between nodes.
func (c *counters) started(start, changed mvcc.Timestamp) {
	c.runs.Add(1)
	c.latency.Observe(time.Duration(start.Millis()-changed.Millis()) * time.Millisecond)
}

// ended counts an outcome.
func (c *counters) ended(out outcome) {
	switch out.kind {
	case clean, early:
		c.skipped.Add(1)
	case conflict:
		c.conflicts.Add(1)
	case divided: // it is unknown for which change the batch failed
		if conflicting(out.err) {
			c.conflicts.Add(1)
		}
	case unavailable:
		c.unavailable.Add(1)
	case refused:
		c.refused.Add(1)
	case failed:
		c.failures.Add(1)
	case parked: // the run has failed too
		c.failures.Add(1)
		c.parked.Add(1)
	case committed, abandoned, interrupted:
		// A commit was counted by commit, a weak observer's before its notification is cleared, so
		// that a caller that waits for the clearing reads the new count. An abandoned run is
		// counted when its failure has been recorded (reported).
	}
}

func (l *registeredObserver) read() Stats {
	c, now := &l.stats, time.Now()
	s := Stats{
		Latency: c.latency.Read(), Took: c.took.Read(), Sizes: c.sizes.Read(),
		Divided: c.divided.Load(), Wait: l.waitsOutside(now),
	}
	s.ObserverStatus = &pb.ObserverStatus{
		Name: l.spec.Name, Table: l.spec.Column.Table, Column: []byte(l.spec.Column.Name),
		Weak: l.spec.Weak, Version: uint32(l.spec.Version),
		Runs: c.runs.Load(), Commits: c.commits.Load(), Conflicts: c.conflicts.Load(),
		Unavailable: c.unavailable.Load(), Failures: c.failures.Load(), Parked: c.parked.Load(),
		Skipped: c.skipped.Load(), Collapsed: c.collapsed.Load(), Refused: c.refused.Load(),
		Queued: uint32(c.queued.Load()), Waiting: uint32(c.waiting.Load()),
		Running: uint32(c.running.Load()), Stuck: uint32(c.stuck.Load()),
		Contended: uint32(c.contended.Load()), Unserved: uint32(c.unserved.Load()),
		Paused: l.disabled.Load() && !l.retired.Load(), Limit: uint32(l.inForce.Load()),
		Outside: outsideWait(s.Wait, now), RunUs: uint64(s.Took.Sum * 1e6),
	}
	return s
}
