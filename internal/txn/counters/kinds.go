// Package counters counts and times the transactions of a client, by kind, outcome, step and name.
// Every transaction is counted once when it ends, on the goroutine that ends it; each attempt of
// Run is a transaction. All is safe for concurrent use.
package counters

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

// Step is a part of a transaction that waits for the oracle or for tablets.
type Step int

// Steps of transactions.
const (
	StepTimestamp Step = iota // waiting for the oracle; timestamps available at once are not counted
	StepPrewrite              // locking the cells of a two-phase commit
	StepCommit                // committing the primary of a two-phase commit, unless asynchronous
	steps
)

// String returns the step as a metric's label.
func (s Step) String() string { return [...]string{"timestamp", "prewrite", "commit"}[s] }
