package sicheck

import "fmt"

// Outcome is the outcome of a transaction for its client.
type Outcome uint8

// Outcomes.
const (
	Committed Outcome = iota
	Aborted           // certainly not committed
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

// Append returns an append of a value that is unique in the history.
func Append(key string, value int64) Op { return Op{Key: key, Append: true, Value: value} }

// Read returns a read with the list as its result.
func Read(key string, list ...int64) Op { return Op{Key: key, List: list} }

// Txn is one attempt of a transaction, with its operations in program order. Began and Ended are the
// times before its first operation was sent and after its last answer, in any unit of a clock that all
// clients of the history share.
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
	// the transactions have no consistent order: lost update, long fork, stale or torn read, …
	Cycle        Kind = "cycle"
	AbortedRead  Kind = "aborted read" // of an append of a transaction that was not committed
	Intermediate Kind = "intermediate read"
	Duplicate    Kind = "duplicate"    // a list contains one append twice
	Garbage      Kind = "garbage read" // of a value that no transaction appended
	Future       Kind = "future read"  // of a value that the reader appended later
	// a committed append is missing from all lists, also from those read later
	Lost     Kind = "lost"
	Internal Kind = "internal" // a transaction's read contradicts its own earlier operations
	Order    Kind = "incompatible order"
	// a value was appended twice: the history cannot be checked
	Malformed Kind = "malformed history"
)

// Anomaly is one violation of snapshot isolation.
type Anomaly struct {
	Kind Kind
	Key  string
	Txns []int  // IDs of its transactions; for a cycle in order
	Text string // description
}

// String returns a line for a report.
func (a Anomaly) String() string {
	return fmt.Sprintf("%s: %s (transactions %v)", a.Kind, a.Text, a.Txns)
}
