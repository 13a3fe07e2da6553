package observer

// This file has the dispatcher's state: a registeredObserver for each observer and an entry for each
// cell that is queued, running, resting or waiting for a backoff. They belong to the
// dispatcher's goroutine, except the atomic fields, which any goroutine may read.

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

// registeredObserver is one registered observer. spec does not change; any goroutine may use stats and
// logger. Only the dispatcher uses the rest, except where it says otherwise.
type registeredObserver struct {
	spec   spec
	table  atomic.Uint32 // changed only by the dispatcher (Relink)
	logger *slog.Logger
	stats  counters

	// limit is how many runs there may be at once: the spec's, until Control changes it.
	limit int
	// held means paused or retired: no run starts. Only the dispatcher changes held, retired
	// and inForce, which is the limit in force.
	held, retired atomic.Bool
	inForce       atomic.Int64

	queue   []*entry // cells that wait for a slot, in the order in which they came
	taken   int      // how many were taken from the queue, if the observer has a Priority
	resting int      // cells that wait for the observer's debounce
	// suspects run one at a time, because a process died during an earlier run of theirs.
	// alone is the one that runs now.
	suspects []*entry
	alone    *entry
	running  int
	stuck    int // how many of the running ones are stuck

	frequent frequent // rows that run again and again
}

func (l *registeredObserver) tableID() mvcc.TableID { return mvcc.TableID(l.table.Load()) }

// ack returns the observer's acknowledgment column in the row of the cell.
func (l *registeredObserver) ack(observed mvcc.Cell) mvcc.Cell {
	return notify.AckCell(observed, l.spec.Name)
}

// free reports whether the observer may start another run. Stuck runs are replaced, but
// no more than limit of them.
func (l *registeredObserver) free() bool { return l.running-min(l.stuck, l.limit) < l.limit }

// enough returns how many cells there is use for at once: those of as many runs as there may be,
// and as many again to go on with, or what a batch or the highest priority is chosen from. Any
// goroutine may call it.
func (l *registeredObserver) enough() int {
	batch := max(l.spec.Batch, 1)
	running := batch * int(l.inForce.Load())
	waiting := max(running, lookahead*batch)
	if l.spec.Priority != nil {
		waiting = max(waiting, hintsAhead)
	}
	return running + waiting
}

// ready reports whether a waiting cell may have a slot.
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
	copy((*from)[1:at+1], *from) // the others keep their order
	(*from)[0] = nil
	*from = (*from)[1:]
	l.stats.queued.Add(-1)
	return e
}

// oldestEvery is how often the cell that has been queued for the longest has its turn before
// those of a higher priority: once in so many runs.
const oldestEvery = 8

// first returns which cell of the queue has its turn by the observer's priorities. It looks at
// all of them: they are few, and each is about to cost a transaction.
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

// rank asks the observer's Priority for the cell's, the first time that it is queued.
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
		n.TS, n.Attempt = percolator.Timestamp(e.known.TS), int(e.known.Attempts)
	}
	e.priority = l.spec.Priority(n)
}

// emptied drops the queues, whose entries were forgotten.
func (l *registeredObserver) emptied() {
	l.queue, l.suspects, l.resting = nil, nil, 0
	l.stats.queued.Store(0)
	l.stats.waiting.Store(0)
}

// ended records that the entry's run has ended or was given up.
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
	resting
)

// entry is a dirty cell in the dispatcher: queued for a slot, running, waiting for a backoff, or
// resting for the observer's debounce.
type entry struct {
	obs   *registeredObserver
	cell  mvcc.Cell
	state state
	known *mvcc.Notify // the newest notify entry heard of; nil if there were only hints
	// hint means that a hint has come since the run began, so there may be a change newer
	// than known.
	hint bool
	done func() // to be called once; nil afterward
	// waits is to be called before the cell waits for a debounce, once at most; nil afterward.
	waits func()
	// backlog means that more of the observer's cells wait elsewhere, and that a newer change
	// has to wait in line with them.
	backlog bool

	retries  int // conflicts and unavailable nodes in a row
	unserved int // of retries, those that were no conflicts
	// trouble is the counter of the observer's stats that has the cell; nil: retries are few.
	trouble *atomic.Int64
	charged recorded // of the next run; zero if that is not recorded
	tablet  uint64   // that is believed to hold the cell, when it was queued; 0: not known
	most    int      // largest batch that it may be in; 0: its observer's

	attempts uint32         // failures of the change at failedTS
	failedTS mvcc.Timestamp // 0 if none has failed
	due      time.Time      // end of the backoff or the debounce, if waiting or resting
	index    int            // in the heap, if waiting or resting
	since    time.Time      // when its first change that has not run was heard of
	priority int            // by the observer's Priority
	ranked   bool           // priority has been asked for
	run      *run           // if running
	parked   bool           // running, but given up and parked
}

// note adds another notification of the same cell.
func (e *entry) note(n *mvcc.Notify) {
	if n == nil {
		e.hint = true
		return
	}
	if e.known == nil || n.TS >= e.known.TS {
		e.known = n
	}
}

// retried counts a run that has to be repeated, and reports whether to log it: first after
// contendedRetries, and then whenever their number has doubled.
func (e *entry) retried(cause error) (warn bool) {
	e.retries++
	if !conflicting(cause) {
		e.unserved++
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

// countAs moves the cell from the counter that has it to another one; nil is none.
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
	e.retries, e.unserved, e.most = 0, 0, 0
	e.countAs(nil)
}

// release calls done the first time it is called.
func (e *entry) release() {
	if e.done != nil {
		e.done()
		e.done = nil
	}
}

// waitHeap has the entry whose backoff or debounce ends first on top.
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
