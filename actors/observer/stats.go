package observer

import (
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Stats are the figures of one observer in this process, counted since the dispatcher
// began. Runs and the dispatcher add to them on their own goroutines; anybody may read.
// Each figure is atomic by itself: two of one reading may be some events apart. Of an observer
// that takes batches, a run for n changes counts as n runs, with what becomes of them;
// Running, Stuck and Limit count batches.
type Stats struct {
	Name   string
	Table  string
	Column string
	Weak   bool

	Runs        uint64 // how often the user's function was called
	Commits     uint64 // runs whose transaction committed
	Conflicts   uint64 // run again because another transaction was faster
	Unavailable uint64 // run again because a node did not answer, or the outcome was unknown
	Failures    uint64 // runs that failed, panicked or passed the deadline
	Parked      uint64 // notifications given up after too many failures
	Skipped     uint64 // found clean or changed too recently: the function was not called
	Collapsed   uint64 // notifications that another one's run covered

	Queued  int // cells that wait for a slot, now
	Waiting int // cells that wait for their backoff or their debounce, now
	Running int // runs going on, now
	Stuck   int // of these, those whose function ignores its context's end
	// Contended is how many cells there are now whose runs have come to nothing some
	// dozens of times in a row, mostly because other transactions were faster. Unserved are
	// those where something was mostly unavailable: the function said so, or a node.
	Contended, Unserved int

	Paused bool // by Control: nothing new starts
	Limit  int  // most runs at once, in force

	// from the change's commit timestamp to the start timestamp of the run, by the
	// oracle's clock
	Latency metrics.Histogram
	Took    metrics.Histogram // of runs, from the call of the function to their end
	Sizes   metrics.Histogram // of batches: for how many changes a call of the function was
	Divided uint64            // batches that came to nothing and were run for again in halves
}

// counters are the live form of Stats.
type counters struct {
	runs, commits, conflicts, unavailable, failures, parked, skipped, collapsed atomic.Uint64
	divided                                                                     atomic.Uint64

	queued, waiting, running, stuck, contended, unserved atomic.Int64

	latency, took metrics.Durations
	sizes         metrics.Sizes
}

// started counts a call of the user's function. Both timestamps are the oracle's, so the
// delay does not depend on how well the nodes' clocks agree.
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
	case divided: // by an error of the function: nobody knows yet of which change
		if conflicting(out.err) {
			c.conflicts.Add(1)
		}
	case unavailable:
		c.unavailable.Add(1)
	case failed:
		c.failures.Add(1)
	case parked: // the run has failed as well
		c.failures.Add(1)
		c.parked.Add(1)
	case committed, abandoned, interrupted:
		// A commit is counted before its notification is cleared, so that who waits for
		// that reads a full count; an abandoned run was counted when it was given up.
	}
}

func (l *registeredObserver) read() Stats {
	c := &l.stats
	return Stats{
		Name: l.spec.Name, Table: l.spec.Column.Table, Column: l.spec.Column.Name,
		Weak: l.spec.Weak,
		Runs: c.runs.Load(), Commits: c.commits.Load(), Conflicts: c.conflicts.Load(),
		Unavailable: c.unavailable.Load(),
		Failures:    c.failures.Load(), Parked: c.parked.Load(), Skipped: c.skipped.Load(),
		Collapsed: c.collapsed.Load(),
		Queued:    int(c.queued.Load()), Waiting: int(c.waiting.Load()),
		Running: int(c.running.Load()),
		Stuck:   int(c.stuck.Load()), Contended: int(c.contended.Load()),
		Unserved: int(c.unserved.Load()), Paused: l.held.Load() && !l.retired.Load(),
		Limit: int(l.inForce.Load()), Latency: c.latency.Read(), Took: c.took.Read(),
		Sizes: c.sizes.Read(), Divided: c.divided.Load(),
	}
}
