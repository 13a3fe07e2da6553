package observer

import (
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Stats are the statistics of one observer in this process, counted since the dispatcher started.
// Each figure is atomic by itself: two figures of one reading may differ by some events. A batch
// for n changes counts as n runs with their outcomes; Running, Stuck, Limit and Divided count
// batches.
type Stats struct {
	Name   string
	Table  string
	Column string
	Weak   bool
	// Version is the registered version.
	Version uint32

	Runs      uint64 // changes for which the user's function was called
	Commits   uint64 // runs whose transaction committed
	Conflicts uint64 // runs repeated because of a conflict
	// Unavailable counts runs repeated because a node did not respond, the outcome was unknown, or
	// the function reported something as unavailable.
	Unavailable uint64
	Failures    uint64 // runs that failed, panicked, exceeded the deadline or repeated once too often
	Parked      uint64 // notifications parked after MaxAttempts failures
	Skipped     uint64 // clean, changed too recently or slowed as a loop: not called
	Collapsed   uint64 // notifications covered by the run of another

	Queued  int // cells waiting for a slot
	Waiting int // cells in backoff or debounce
	Running int // current runs
	Stuck   int // current runs whose function ignores the cancellation of its context
	// Contended is the current number of cells that have had dozens of consecutive runs without a
	// result, mostly because of conflicts. Unserved counts those where the cause was mostly
	// unavailability, reported by the function or by a node.
	Contended, Unserved int

	Paused bool // paused by Control: no run starts
	Limit  int  // effective limit of concurrent runs

	// Latency is measured from the change's commit timestamp to the run's start timestamp, both
	// of the oracle's clock.
	Latency metrics.Histogram
	Took    metrics.Histogram // durations of runs, from the call of the function to their end
	Sizes   metrics.Histogram // changes per call of the function
	Divided uint64            // batches that were split, in halves or, if abandoned, in single runs

	Refused uint64  // runs repeated because an external service refused them
	Outside Outside // the wait for an external service
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
	c := &l.stats
	return Stats{
		Name: l.spec.Name, Table: l.spec.Column.Table, Column: l.spec.Column.Name,
		Weak: l.spec.Weak, Version: uint32(l.spec.Version),
		Runs: c.runs.Load(), Commits: c.commits.Load(), Conflicts: c.conflicts.Load(),
		Unavailable: c.unavailable.Load(),
		Failures:    c.failures.Load(), Parked: c.parked.Load(), Skipped: c.skipped.Load(),
		Collapsed: c.collapsed.Load(),
		Queued:    int(c.queued.Load()), Waiting: int(c.waiting.Load()),
		Running: int(c.running.Load()),
		Stuck:   int(c.stuck.Load()), Contended: int(c.contended.Load()),
		Unserved: int(c.unserved.Load()), Paused: l.disabled.Load() && !l.retired.Load(),
		Limit: int(l.inForce.Load()), Latency: c.latency.Read(), Took: c.took.Read(),
		Sizes: c.sizes.Read(), Divided: c.divided.Load(),
		Refused: c.refused.Load(), Outside: l.waitsOutside(time.Now()),
	}
}
