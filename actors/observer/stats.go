package observer

import (
	"math/bits"
	"sync/atomic"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// Stats of one observer in this process, since it began.
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
	Skipped     uint64 // found clean: the function was not called
	Collapsed   uint64 // notifications that another one's run covered

	Queued  int // cells that wait for a slot, now
	Waiting int // cells that wait for their backoff, now
	Running int // runs going on, now
	Stuck   int // of these, those whose function ignores its context's end
	// Contended is how many cells there are now whose runs have come to nothing some
	// dozens of times in a row.
	Contended int

	Paused  bool // by Control: nothing new starts
	Retired bool // by Control: for good
	Limit   int  // most runs at once, in force

	// from the change's commit timestamp to the start timestamp of the run, by the
	// oracle's clock
	Latency Latency
}

// counters are the live form of Stats.
type counters struct {
	runs, commits, conflicts, unavailable, failures, parked, skipped, collapsed atomic.Uint64

	queued, waiting, running, stuck, contended atomic.Int64

	latency histogram
}

// started counts a call of the user's function.
func (c *counters) started(start, changed mvcc.Timestamp) {
	c.runs.Add(1)
	c.latency.observe(start.Millis() - changed.Millis())
}

// ended counts an outcome.
func (c *counters) ended(kind outcomeKind) {
	switch kind {
	case clean:
		c.skipped.Add(1)
	case conflict:
		c.conflicts.Add(1)
	case unavailable:
		c.unavailable.Add(1)
	case failed:
		c.failures.Add(1)
	case parked:
		c.failures.Add(1)
		c.parked.Add(1)
	case committed, abandoned, interrupted:
		// A commit is counted before its notification is cleared, so that who waits for
		// that reads a full count; an abandoned run was counted when it was given up.
	}
}

func (l *linked) read() Stats {
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
		Stuck:   int(c.stuck.Load()), Contended: int(c.contended.Load()), Paused: l.held.Load() &&
			!l.retired.Load(), Retired: l.retired.Load(),
		Limit: int(l.inForce.Load()), Latency: c.latency.read(),
	}
}

// LatencyBuckets is the number of buckets of a Latency. Bucket i counts latencies below
// 2^i milliseconds that are in no bucket before it; the last one counts the rest too.
const LatencyBuckets = 24

// Latency is a histogram of milliseconds.
type Latency struct {
	Count   uint64
	SumMs   uint64
	Buckets [LatencyBuckets]uint64
}

// Quantile is an upper bound, in milliseconds, of the q-quantile (0 < q ≤ 1); 0 if
// nothing was counted.
func (l Latency) Quantile(q float64) int64 {
	if l.Count == 0 {
		return 0
	}
	rank := uint64(q * float64(l.Count))
	var seen uint64
	for i, n := range l.Buckets {
		seen += n
		if seen >= max(rank, 1) {
			return 1 << i
		}
	}
	return 1 << (LatencyBuckets - 1)
}

type histogram struct {
	sum     atomic.Uint64
	buckets [LatencyBuckets]atomic.Uint64
}

func (h *histogram) observe(ms int64) {
	ms = max(ms, 0)
	h.sum.Add(uint64(ms))
	h.buckets[min(bits.Len64(uint64(ms)), LatencyBuckets-1)].Add(1)
}

func (h *histogram) read() Latency {
	l := Latency{SumMs: h.sum.Load()}
	for i := range h.buckets {
		l.Buckets[i] = h.buckets[i].Load()
		l.Count += l.Buckets[i]
	}
	return l
}
