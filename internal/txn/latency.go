package txn

import (
	"errors"

	"github.com/percolator-go/percolator/internal/metrics"
)

// This file counts how long transactions take, by what they were and how they ended, and
// which part of it their steps were. Every transaction that ends is counted once, on the
// goroutine that ends it: Run counts each of its runs.

// Kind is how a transaction commits.
type Kind int

// Kinds of transactions.
const (
	Undecided  Kind = iota // it ended before that was known: by a read, or given up
	ReadOnly               // it has nothing to write
	NotifyOnly             // it has weak notifications alone
	OnePhase               // its cells are all in one tablet
	TwoPhase
	kinds
)

// String returns the kind as a metric's label.
func (k Kind) String() string {
	return [...]string{"undecided", "read", "notify", "one_phase", "two_phase"}[k]
}

// Outcome is how a transaction ended.
type Outcome int

// Outcomes of transactions.
const (
	Committed  Outcome = iota
	Conflicted         // another transaction was first
	LockedOut          // a live lock of another transaction was in the way
	Unknown            // nobody knows
	Failed             // by any other error; surely not committed
	Abandoned          // by its program, which rolled it back or returned an error
	outcomes
)

// String returns the outcome as a metric's label.
func (o Outcome) String() string {
	return [...]string{"committed", "conflict", "locked", "unknown", "failed", "abandoned"}[o]
}

// outcomeOf returns what a commit with this error came to.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Committed
	case errors.Is(err, ErrCommitUnknown):
		return Unknown
	case errors.Is(err, ErrConflict):
		return Conflicted
	case errors.Is(err, ErrLocked):
		return LockedOut
	}
	return Failed
}

// Step is a part of a transaction for which it waits.
type Step int

// Steps of transactions.
const (
	StepTimestamp Step = iota // for the oracle; what it gives at once is not among them
	StepPrewrite              // until all cells of a two-phase commit are locked
	StepCommit                // until the primary of a two-phase commit is decided
	steps
)

// String returns the step as a metric's label.
func (s Step) String() string { return [...]string{"timestamp", "prewrite", "commit"}[s] }

// latencies are how long transactions and their steps took.
type latencies struct {
	whole [kinds][outcomes]metrics.Durations
	steps [steps]metrics.Durations // StepTimestamp is the oracle's own
}

// count returns how many transactions of any kind ended so.
func (l *latencies) count(o Outcome) (n uint64) {
	for k := range kinds {
		n += l.whole[k][o].Read().Count()
	}
	return n
}

// record counts the end of the transaction.
func (t *Txn) record(k Kind, o Outcome) {
	took := t.began.Elapsed()
	t.c.stats.latencies.whole[k][o].Observe(took)
	if o != Abandoned {
		t.counted.ended(o, took)
	}
	t.traced(k, o)
}

// Latencies are how long a client's transactions took since it began.
type Latencies struct {
	// Whole is from the beginning to the end, by kind and outcome; only what has happened
	// is there, and, from the beginning, what commits and what is unknown.
	Whole map[Kind]map[Outcome]metrics.Histogram
	Steps map[Step]metrics.Histogram
	// ByName is by Options.Name and outcome, of the first names that there were:
	// Committed, Conflicted or Failed.
	ByName map[string]map[Outcome]metrics.Histogram
}

// Latencies returns them as of now.
func (c *Client) Latencies() Latencies {
	out := Latencies{
		Whole: map[Kind]map[Outcome]metrics.Histogram{}, Steps: map[Step]metrics.Histogram{},
	}
	l := &c.stats.latencies
	for k := range kinds {
		out.Whole[k] = map[Outcome]metrics.Histogram{}
		for o := range outcomes {
			if h := l.whole[k][o].Read(); h.Count() > 0 ||
				k != Undecided && (o == Committed || o == Unknown) {
				out.Whole[k][o] = h
			}
		}
	}
	for s := range steps {
		out.Steps[s] = l.steps[s].Read()
	}
	out.Steps[StepTimestamp] = c.oracle.waited.Read()
	out.ByName = c.stats.latenciesByName()
	return out
}
