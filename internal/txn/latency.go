package txn

import (
	"errors"

	"github.com/percolator-go/percolator/internal/metrics"
)

// Latency histograms of transactions, by kind and outcome, and of their steps. Every
// transaction is counted once when it ends, on the goroutine that ends it. Run counts each
// attempt.

// Kind is the way in which a transaction commits.
type Kind int

// Kinds of transactions.
const (
	Undecided  Kind = iota // ended before Commit chose a kind
	ReadOnly               // nothing to write
	NotifyOnly             // weak notifications only
	OnePhase               // all cells in one tablet
	TwoPhase
	kinds
)

// String returns the kind as a metric's label.
func (k Kind) String() string {
	return [...]string{"undecided", "read", "notify", "one_phase", "two_phase"}[k]
}

// Outcome is the end of a transaction.
type Outcome int

// Outcomes of transactions.
const (
	Committed  Outcome = iota
	Conflicted         // lost a conflict
	LockedOut          // encountered a live lock of another transaction
	Unknown            // ErrCommitUnknown
	Failed             // any other error; not committed
	Abandoned          // the program rolled it back or returned an error
	outcomes
)

// String returns the outcome as a metric's label.
func (o Outcome) String() string {
	return [...]string{"committed", "conflict", "locked", "unknown", "failed", "abandoned"}[o]
}

// outcomeOf returns the outcome of a commit that returned err.
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

// Step is a part of a transaction that waits for others.
type Step int

// Steps of transactions.
const (
	StepTimestamp Step = iota // waiting for the oracle; timestamps available at once are not counted
	StepPrewrite              // locking all cells of a two-phase commit
	StepCommit                // committing the primary of a two-phase commit
	steps
)

// String returns the step as a metric's label.
func (s Step) String() string { return [...]string{"timestamp", "prewrite", "commit"}[s] }

// latencies are the latency histograms of transactions and their steps.
type latencies struct {
	whole [kinds][outcomes]metrics.Durations
	steps [steps]metrics.Durations // StepTimestamp is kept by oracle
}

// count returns the number of transactions of any kind with the outcome.
func (l *latencies) count(o Outcome) (n uint64) {
	for k := range kinds {
		n += l.whole[k][o].Read().Count()
	}
	return n
}

// record counts the transaction and its latency.
func (t *Txn) record(k Kind, o Outcome) {
	took := t.began.Elapsed()
	t.c.stats.latencies.whole[k][o].Observe(took)
	if o != Abandoned {
		t.counted.ended(o, took)
	}
	t.traced(k, o)
}

// Latencies are a client's latency histograms since it was created.
type Latencies struct {
	// Whole is the latency from begin to end, by kind and outcome. It has entries for the
	// combinations that occurred and, always, for Committed and Unknown.
	Whole map[Kind]map[Outcome]metrics.Histogram
	Steps map[Step]metrics.Histogram
	// ByName is by Options.Name, of the first names used, and outcome: Committed, Conflicted
	// or Failed.
	ByName map[string]map[Outcome]metrics.Histogram
}

// Latencies returns the current histograms.
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
