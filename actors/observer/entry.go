package observer

// Dispatcher state: a registeredObserver per observer, and an entry per cell that is queued,
// running, in debounce or in backoff. It is confined to the dispatcher's goroutine, except the
// atomic fields, which any goroutine may read.

import (
	"container/heap"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// registeredObserver is one registered observer. spec is immutable; any goroutine may use stats
// and logger. The other fields belong to the dispatcher unless they say otherwise.
type registeredObserver struct {
	spec   spec
	link   atomic.Pointer[Link] // changed only by the dispatcher (Relink)
	logger *slog.Logger
	stats  counters
	// versions is the dispatcher's Config.Versions.
	versions func() bool

	// limit is the maximum number of concurrent batches: the spec's, until Control changes it.
	limit int
	// disabled means paused or retired: no run starts. Only the dispatcher changes disabled, retired and
	// inForce, the effective limit.
	disabled, retired atomic.Bool
	inForce           atomic.Int64

	queue      []*entry // cells waiting for a slot, in order of arrival, refused ones first
	taken      int      // number removed from the queue, if the observer has a Priority
	debouncing int      // cells in debounce
	// suspects run one at a time, because a process died during an earlier run of these rows. alone
	// is the one running now.
	suspects []*entry
	alone    *entry
	running  int
	stuck    int // stuck runs among the running ones

	frequent frequent // rows that run repeatedly

	parking  chan struct{} // one element per call of the spec's OnParked in progress
	parkedAt time.Time     // when a run of this process last parked a change
	size     int           // maximum size of a batch; 0: the spec's
	outside  outside       // what an external service admits
}

// target returns the column of the observer's notify cells; ok is false if its table does not
// exist.
func (l *registeredObserver) target() (t notify.Target, ok bool) {
	return (&Registered{Spec: l.spec, Link: *l.link.Load()}).Target()
}

// observed returns the observed cell of a notify cell.
func (l *registeredObserver) observed(cell mvcc.Cell) mvcc.Cell {
	cell.Class, cell.Column = mvcc.ClassData, l.spec.Column.Name
	return cell
}

// ack returns the observer's acknowledgment cell in the row of a notify cell.
func (l *registeredObserver) ack(cell mvcc.Cell) mvcc.Cell {
	return notify.AckCell(cell, l.spec.Name)
}

// active returns the number of current batches without the stuck ones, of which it leaves out at
// most limit.
func (l *registeredObserver) active() int { return l.running - min(l.stuck, l.limit) }

// free reports whether the observer may start another run.
func (l *registeredObserver) free() bool { return l.active() < l.limit }

// version returns the version to store in acknowledgments: 0 while nodes of the cluster may not be able to
// read another one.
func (l *registeredObserver) version() uint32 {
	if l.versions != nil && !l.versions() {
		return 0
	}
	return uint32(l.spec.Version)
}

// enough returns the number of cells, running and queued, that the observer can use: as many as its
// concurrent batches handle, and in the queue as many again, or more if a batch or the highest
// priority is chosen from them. It is safe for concurrent use.
func (l *registeredObserver) enough() int {
	batch := max(l.spec.Batch, 1)
	running := batch * int(l.inForce.Load())
	waiting := max(running, lookahead*batch)
	if l.spec.Priority != nil {
		waiting = max(waiting, hintsAhead)
	}
	return running + waiting
}

// ready reports whether a queued cell may get a slot.
func (l *registeredObserver) ready() bool {
	return len(l.queue) > 0 || (len(l.suspects) > 0 && l.alone == nil)
}

// next removes the next cell from the queues. The observer must be ready.
func (l *registeredObserver) next() *entry {
	from := &l.queue
	if len(l.suspects) > 0 && l.alone == nil {
		from = &l.suspects
		l.alone = l.suspects[0]
	}
	at := 0
	if from == &l.queue && l.spec.Priority != nil {
		at = l.first()
	}
	e := (*from)[at]
	copy((*from)[1:at+1], *from) // the other entries keep their order
	(*from)[0] = nil
	*from = (*from)[1:]
	l.stats.queued.Add(-1)
	return e
}

// oldestEvery is the number of runs after which the cell queued longest runs next, regardless of
// priority.
const oldestEvery = 8

// first returns the index of the queued cell that runs next: that of the highest priority, the oldest
// among equals. Every oldestEvery-th call returns 0, the oldest cell. first compares all queued cells:
// they are few, and each is about to cost a transaction.
func (l *registeredObserver) first() int {
	at := 0
	if l.taken++; l.taken%oldestEvery != 0 {
		for i, e := range l.queue {
			if e.priority > l.queue[at].priority {
				at = i
			}
		}
	}
	return at
}

// rank sets the cell's priority by the observer's Priority, when the cell is first queued.
func (l *registeredObserver) rank(e *entry) {
	if l.spec.Priority == nil || e.ranked {
		return
	}
	e.ranked = true
	defer func() {
		if p := recover(); p != nil {
			l.logger.Error("observer: its Priority panicked; the row has priority 0", "observer",
				l.spec.Name, "row", e.cell.Row, "panic", fmt.Sprint(p))
		}
	}()
	n := percolator.Notification{
		Row: e.cell.Row, Column: l.spec.Column, Attempt: int(e.attempts),
	}
	if e.known != nil {
		n.CommitTS = percolator.Timestamp(e.known.TS)
		n.TS = n.CommitTS //nolint:staticcheck // programs may still use the former name
		n.Attempt = int(e.known.Attempts)
	}
	e.priority = l.spec.Priority(n)
}

// emptied drops the queues after their entries were dropped.
func (l *registeredObserver) emptied() {
	l.queue, l.suspects, l.debouncing = nil, nil, 0
	l.stats.queued.Store(0)
	l.stats.waiting.Store(0)
}

// ended lets the next suspect run, if the entry is the suspect that runs alone. It is called when the
// entry's run has ended or was abandoned.
func (l *registeredObserver) ended(e *entry) {
	if l.alone == e {
		l.alone = nil
	}
}

// state is the state of an entry.
type state uint8

const (
	queued state = iota
	running
	waiting
	debouncing
)

// entry is a dirty cell in the dispatcher: queued, running, in backoff, or in debounce.
type entry struct {
	obs   *registeredObserver
	cell  mvcc.Cell
	state state
	known *mvcc.Notify // the newest notify entry known; nil if only hints arrived
	// hint means that a hint arrived after the run started, so there may be a change newer than
	// known.
	hint bool
	// stale means that the change may have been parked already when the cell was submitted.
	stale bool
	done  func() // called once; nil afterward
	// waits is called at most once, before the cell enters debounce; nil afterward.
	waits func()
	// backlog means that more of the observer's cells are pending elsewhere, and that a newer
	// change must queue behind them.
	backlog bool

	retries   int // consecutive runs without a result, such as conflicts
	unserved  int // retries that were not conflicts
	conflicts int // retries that count towards MaxConflicts
	// trouble is the counter of the observer's stats that includes the cell; nil while retries
	// are few.
	trouble *atomic.Int64
	charged recorded // attempt of the next run; zero if none is recorded
	tablet  uint64   // tablet of the cell by the routes cached when it was queued; 0 if unknown
	most    int      // largest batch that may include it; 0 for its observer's limit

	attempts uint32         // failures of the change at failedTS
	failedTS mvcc.Timestamp // 0 if none has failed
	due      time.Time      // end of the backoff or the debounce, if in backoff or debounce
	index    int            // in the heap, if in backoff or debounce
	since    time.Time      // when its oldest change that has not run was reported
	priority int            // by the observer's Priority
	ranked   bool           // priority is set
	run      *run           // if running
	parked   bool           // abandoned and parked, though still running
}

// note records another notification of the same cell.
func (e *entry) note(n *mvcc.Notify) {
	if n == nil {
		e.hint = true
		return
	}
	if e.known == nil || n.TS >= e.known.TS {
		e.known = n
	}
}

// retried counts a run to be repeated, and reports whether to log it: at contendedRetries, and
// then whenever their number has doubled.
func (e *entry) retried(out outcome) (warn bool) {
	e.retries++
	if !conflicting(out.err) {
		e.unserved++
	}
	if conflicting(out.err) || out.postponed {
		e.conflicts++
	}
	if e.retries < contendedRetries {
		return false
	}
	if 2*e.unserved > e.retries {
		e.countAs(&e.obs.stats.unserved)
	} else {
		e.countAs(&e.obs.stats.contended)
	}
	return e.retries&(e.retries-1) == 0
}

// countAs moves the cell from its counter to another one; nil is none.
func (e *entry) countAs(trouble *atomic.Int64) {
	if e.trouble == trouble {
		return
	}
	if e.trouble != nil {
		e.trouble.Add(-1)
	}
	if trouble != nil {
		trouble.Add(1)
	}
	e.trouble = trouble
}

// settled resets the retries, because a run has had a result or the entry is dropped.
func (e *entry) settled() {
	e.retries, e.unserved, e.conflicts, e.most = 0, 0, 0, 0
	e.countAs(nil)
}

// release calls done the first time it is called.
func (e *entry) release() {
	if e.done != nil {
		e.done()
		e.done = nil
	}
}

// waitHeap orders entries by the end of their backoff or debounce.
type waitHeap []*entry

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waitHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *waitHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// restore restores the heap after entries were removed from the middle.
func (h *waitHeap) restore() {
	for i, e := range *h {
		e.index = i
	}
	heap.Init(h)
}

var _ heap.Interface = (*waitHeap)(nil)
