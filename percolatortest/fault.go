package percolatortest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Kind is the kind of a fault.
type Kind int

// The kinds of faults. The first four affect commits: the framework retries or resolves the
// transaction of an observer, and Transact that of its caller, except that Transact returns
// ErrCommitUnknown for CommitUnknown and CommitLost.
const (
	// CommitConflicts fails the commit as if another transaction had changed one of its
	// cells.
	CommitConflicts Kind = iota + 1
	// CommitReplyLost executes the commit and drops its reply. The client determines that the
	// transaction is committed.
	CommitReplyLost
	// CommitUnknown executes the commit, drops its reply, and fails every attempt to determine
	// the outcome.
	CommitUnknown
	// CommitLost makes the commit fail like CommitUnknown, without executing it.
	CommitLost
	// ClearLost commits the run's transaction without clearing the notification, as if the
	// process had died in between. When the notification is found again, a strong observer
	// does not run again, a weak one does.
	ClearLost
	// RunFails calls the observer's function and returns Err in place of nil or a *PartialError.
	// A run that fails by itself is no occurrence.
	RunFails
	// RunPanics is like RunFails, but panics.
	RunPanics
	// TabletUnavailable fails all reads and commits with "unavailable"; clients retry.
	TabletUnavailable
	// TabletSlow delays all reads and commits by Delay.
	TabletSlow
	// OracleUnavailable fails requests for timestamps; clients retry.
	OracleUnavailable
	// OracleSlow delays requests for timestamps by Delay.
	OracleSlow
)

// String returns the name of the kind.
func (k Kind) String() string {
	names := [...]string{
		"", "CommitConflicts", "CommitReplyLost", "CommitUnknown", "CommitLost", "ClearLost",
		"RunFails", "RunPanics",
		"TabletUnavailable", "TabletSlow", "OracleUnavailable", "OracleSlow",
	}
	if k < 1 || int(k) >= len(names) {
		return fmt.Sprintf("Kind(%d)", int(k))
	}
	return names[k]
}

// Everybody as Fault.Observer selects the transactions of all observers and all others.
const Everybody = "*"

// Fault describes a fault to inject.
type Fault struct {
	Kind Kind
	// Observer is the observer whose transactions are affected: a name, Everybody, or "" for
	// transactions outside observers. Faults of tablets and of the oracle ignore it.
	Observer string
	// Times is the number of occurrences; 0 means until Stop. Each retry of a transaction
	// counts.
	Times int
	Delay time.Duration // for TabletSlow and OracleSlow
	Err   error         // for RunFails; nil selects a generic error
}

// Injection is an injected fault. Its methods are safe for concurrent use.
type Injection struct {
	fault Fault

	mu      sync.Mutex
	count   int
	stopped bool
	// hit has the start timestamps of the affected transactions: the fault does not affect their
	// later messages.
	hit map[uint64]bool
}

// Inject starts injecting a fault. If f.Times is positive and the fault has never occurred when
// the node is closed, the test that started the node fails.
func (n *Node) Inject(t testing.TB, f Fault) *Injection {
	t.Helper()
	if f.Kind < CommitConflicts || f.Kind > OracleSlow || f.Times < 0 || f.Delay < 0 {
		t.Fatalf("percolatortest: invalid fault: %+v", f)
	}
	i := &Injection{fault: f, hit: map[uint64]bool{}}
	n.faults.add(i)
	return i
}

// Count returns the number of occurrences so far.
func (i *Injection) Count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// Stop stops injecting the fault.
func (i *Injection) Stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
}

// take reports whether the fault occurs now, and counts it. start is the transaction's start
// timestamp, or 0 without a transaction.
func (i *Injection) take(observer string, start uint64) bool {
	f := i.fault
	if byTransaction := f.Kind <= RunPanics; byTransaction && f.Observer != Everybody &&
		f.Observer != observer {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped || (f.Times > 0 && i.count >= f.Times) || i.hit[start] {
		return false
	}
	if start != 0 {
		i.hit[start] = true
	}
	i.count++
	return true
}

// faults contains the injections of a node, which survive its restarts.
type faults struct {
	mu   sync.Mutex
	list []*Injection
	runs runs
}

func (x *faults) add(i *Injection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, i)
}

// take returns a fault of one of the kinds that occurs now, or nil.
func (x *faults) take(observer string, start uint64, kinds ...Kind) *Fault {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range x.list {
		for _, k := range kinds {
			if i.fault.Kind == k && i.take(observer, start) {
				return &i.fault
			}
		}
	}
	return nil
}

// untake undoes take for a fault that did not occur after all.
func (x *faults) untake(f *Fault, start uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range x.list {
		if &i.fault == f {
			i.mu.Lock()
			i.count--
			delete(i.hit, start)
			i.mu.Unlock()
		}
	}
}

// reportUnused fails the test if a fault with positive Times never occurred.
func (x *faults) reportUnused(t testing.TB) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range x.list {
		if i.fault.Times > 0 && i.Count() == 0 {
			t.Errorf("percolatortest: the injected fault %v of observer %q never occurred",
				i.fault.Kind, i.fault.Observer)
		}
	}
}

// errInjected is the default of Fault.Err.
var errInjected = errors.New("percolatortest: injected failure")

func (f *Fault) err() error { return cmp.Or(f.Err, errInjected) }

// maxRuns is the number of runs that runs remembers.
const maxRuns = 1 << 12

// runs maps the start timestamps of the latest runs to their observers.
type runs struct {
	mu    sync.Mutex
	of    map[uint64]string
	order []uint64
}

func (r *runs) began(start uint64, observer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[uint64]string{}
	}
	r.of[start] = observer
	if r.order = append(r.order, start); len(r.order) > maxRuns {
		delete(r.of, r.order[0])
		r.order = r.order[1:]
	}
}

// observer returns the observer of a transaction, or "" for a transaction outside observers.
func (r *runs) observer(start uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[start]
}
