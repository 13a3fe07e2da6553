package percolatortest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// Kind is what goes wrong.
type Kind int

// What may go wrong. The first four happen to commits, and the observer's transaction is
// run again, or settled, by the framework; so does Transact for its caller, but for the
// two whose outcome is unknown: it returns ErrCommitUnknown.
const (
	// CommitConflicts: the commit is refused as if another transaction had changed one of
	// its cells.
	CommitConflicts Kind = iota + 1
	// CommitReplyLost: the commit is done, its reply is lost. The client finds out that
	// it is committed.
	CommitReplyLost
	// CommitUnknown: the commit is done, its reply is lost, and so is every attempt to find out.
	CommitUnknown
	// CommitLost: as CommitUnknown, but the commit is not done.
	CommitLost
	// ClearLost: the run's transaction commits, and its notification is not cleared, as
	// if its process had died in between: the notification is found again. A strong
	// observer is not run again for it, a weak one is.
	ClearLost
	// RunFails: the observer's function is run, and Err, or some error, is returned in its place.
	RunFails
	// RunPanics: the observer's function is run and panics.
	RunPanics
	// TabletUnavailable: reads and commits of everybody are answered "unavailable", and
	// tried again.
	TabletUnavailable
	// TabletSlow: reads and commits of everybody take Delay longer.
	TabletSlow
	// OracleUnavailable: requests for timestamps fail, and are tried again.
	OracleUnavailable
	// OracleSlow: requests for timestamps take Delay longer.
	OracleSlow
)

// String is the kind's name, for messages.
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

// Everybody as a Fault's Observer means every transaction: all observers' and all others.
const Everybody = "*"

// Fault is one thing that goes wrong, now and then or always.
type Fault struct {
	Kind Kind
	// Observer whose runs it happens to; Everybody, or empty for the transactions that
	// are no observer's. It is not looked at for tablets and the oracle.
	Observer string
	// Times is how often it happens; 0: until it is stopped. A transaction that is run
	// again counts again.
	Times int
	Delay time.Duration // TabletSlow, OracleSlow
	Err   error         // RunFails; nil: some error
}

// Injection is a fault that is switched on. Its methods may be used concurrently.
type Injection struct {
	fault Fault

	mu      sync.Mutex
	count   int
	stopped bool
	// start timestamps of the commits that it has happened to: their repeated messages
	// are no new ones
	hit map[uint64]bool
}

// Inject switches a fault on. If Times bounds it and it has not happened once by t's end, t fails.
func (n *Node) Inject(t testing.TB, f Fault) *Injection {
	t.Helper()
	if f.Kind < CommitConflicts || f.Kind > OracleSlow || f.Times < 0 || f.Delay < 0 {
		t.Fatalf("percolatortest: no such fault: %+v", f)
	}
	i := &Injection{fault: f, hit: map[uint64]bool{}}
	n.faults.add(i)
	return i
}

// Count is how often it has happened.
func (i *Injection) Count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

// Stop switches it off.
func (i *Injection) Stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
}

// take reports whether it happens now to a transaction, 0 for what is none, of the observer.
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

// faults are a node's injections, over all its lives.
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

// take finds a fault of one of the kinds that happens now; nil: none does.
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

// giveBack says that a fault that was taken has not happened to the transaction after all.
func (x *faults) giveBack(f *Fault, start uint64) {
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

// unused fails the test of faults that never happened.
func (x *faults) unused(t testing.TB) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, i := range x.list {
		if i.fault.Times > 0 && i.Count() == 0 {
			t.Errorf("percolatortest: the fault %v of %q was injected and never happened",
				i.fault.Kind, i.fault.Observer)
		}
	}
}

// errInjected is what a run fails with if the fault says nothing else.
var errInjected = errors.New("percolatortest: injected failure")

func (f *Fault) err() error { return cmp.Or(f.Err, errInjected) }

// maxRuns bounds how many runs are remembered.
const maxRuns = 1 << 12

// runs remembers which observer the latest transactions belong to, by start timestamp.
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

// observer is whose transaction it is; empty: no observer's.
func (r *runs) observer(start uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[start]
}
