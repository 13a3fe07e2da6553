package sicheck

import "fmt"

// Outcome is how a transaction ended, as its client saw it.
type Outcome uint8

// Outcomes.
const (
	Committed Outcome = iota
	Aborted           // surely not committed
	Unknown           // the client does not know
)

// Op is one operation of a transaction: an append of Value to the list at Key, or a read
// that returned List.
type Op struct {
	Key    string
	Append bool
	Value  int64
	List   []int64
}

// Append appends a value, unique in the history.
func Append(key string, value int64) Op { return Op{Key: key, Append: true, Value: value} }

// Read is a read that returned the list.
func Read(key string, list ...int64) Op { return Op{Key: key, List: list} }

// Txn is one attempt of a transaction, its operations in the order of its program. Began
// and Ended are times of the one clock that all clients of the history share, in any
// unit: before its first operation was sent, after its last answer.
type Txn struct {
	ID      int // for reports
	Ops     []Op
	Began   int64
	Ended   int64
	Outcome Outcome
}

// Kind is a kind of anomaly.
type Kind string

// Kinds of anomalies.
const (
	// the transactions cannot be put in an order: lost update, long fork, stale or torn
	// read, …
	Cycle        Kind = "cycle"
	AbortedRead  Kind = "aborted read" // of an append of a transaction that was not committed
	Intermediate Kind = "intermediate read"
	Duplicate    Kind = "duplicate"    // a list holds one append twice
	Garbage      Kind = "garbage read" // of a value that nobody appended
	Future       Kind = "future read"  // of a value that the reader appended later
	// a committed append is in no list, also not in one that was read later
	Lost     Kind = "lost"
	Internal Kind = "internal" // a transaction's reads contradict its own operations before
	Order    Kind = "incompatible order"
	// a value was appended twice: the history cannot be checked
	Malformed Kind = "malformed history"
)

// Anomaly is one thing that snapshot isolation does not allow.
type Anomaly struct {
	Kind Kind
	Key  string
	Txns []int  // the transactions of it by ID; of a cycle in order
	Text string // what there is to see
}

// String is a line for a report.
func (a Anomaly) String() string {
	return fmt.Sprintf("%s: %s (transactions %v)", a.Kind, a.Text, a.Txns)
}
