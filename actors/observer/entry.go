package observer

import (
	"container/heap"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/notify"
)

// linked is one registered observer as the dispatcher keeps it. stats may be read by
// anyone, logger used by anyone; the rest, but where it says otherwise, is the
// dispatcher's own after the start, spec does not change.
type linked struct {
	spec   spec
	table  atomic.Uint32 // changed by the dispatcher alone (Relink), read by anyone
	logger *slog.Logger
	stats  counters

	// limit is how many runs may go on at once: the spec's, until Control says otherwise.
	limit int
	// held: paused or retired, so nothing new starts. Like inForce, the limit, and
	// retired it is changed by the dispatcher alone and read by anyone.
	held, retired atomic.Bool
	inForce       atomic.Int64

	queue []*entry // cells that wait for a slot, first come first served
	// suspects wait to run one at a time: a process died while a run of theirs went on.
	// alone is the one that runs now.
	suspects []*entry
	alone    *entry
	running  int
	stuck    int // of the running ones

	frequent frequent // rows that are run for again and again
}

func (l *linked) tableID() mvcc.TableID { return mvcc.TableID(l.table.Load()) }

// ack is the observer's acknowledgment column in the row of the cell.
func (l *linked) ack(observed mvcc.Cell) mvcc.Cell { return notify.AckCell(observed, l.spec.Name) }

// free reports whether the observer may start another run. Stuck runs are replaced, but
// no more than limit of them.
func (l *linked) free() bool { return l.running-min(l.stuck, l.limit) < l.limit }

// ready reports whether a cell waits that may have a slot.
func (l *linked) ready() bool { return len(l.queue) > 0 || (len(l.suspects) > 0 && l.alone == nil) }

// next takes the next cell out of the queues. The observer is ready.
func (l *linked) next() *entry {
	from := &l.queue
	if len(l.suspects) > 0 && l.alone == nil {
		from = &l.suspects
		l.alone = l.suspects[0]
	}
	e := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	l.stats.queued.Add(-1)
	return e
}

// emptied forgets what waits.
func (l *linked) emptied() {
	l.queue, l.suspects = nil, nil
	l.stats.queued.Store(0)
	l.stats.waiting.Store(0)
}

// ended notes that the entry's run has ended, or is waited for no longer.
func (l *linked) ended(e *entry) {
	if l.alone == e {
		l.alone = nil
	}
}

// state is where an entry is.
type state uint8

const (
	queued state = iota
	running
	waiting
)

// entry is a dirty cell in the dispatcher: queued for a slot, running, or waiting for a backoff.
type entry struct {
	obs   *linked
	cell  mvcc.Cell
	state state
	known *mvcc.Notify // newest notify entry heard of; nil: hints only
	// a hint has come since the run began: something newer than known may be there
	hint bool
	done func() // to be called once; nil afterward
	// backlog: more of the observer's cells wait than those that are here, and what is
	// newer waits in line with them.
	backlog bool

	retries int // conflicts and unavailable nodes in a row
	// contended: retries are so many that somebody was warned; counted in the observer's stats.
	contended bool
	// attempts of the change, that of the run which is to come among them; 0: it is not
	// counted yet
	charged  uint32
	attempts uint32         // failures of the change at failedTS
	failedTS mvcc.Timestamp // 0: none has failed
	due      time.Time      // waiting: until then
	index    int            // waiting: in the heap
	run      *run           // running
	parked   bool           // running, but given up and parked
}

// note takes in another notification of the same cell.
func (e *entry) note(n *mvcc.Notify) {
	if n == nil {
		e.hint = true
		return
	}
	if e.known == nil || n.TS >= e.known.TS {
		e.known = n
	}
}

// retried counts one more run that came to nothing, and reports whether to warn of it:
// first after contendedRetries, then each time that they have doubled.
func (e *entry) retried() (warn bool) {
	e.retries++
	if e.retries < contendedRetries {
		return false
	}
	if !e.contended {
		e.contended = true
		e.obs.stats.contended.Add(1)
	}
	return e.retries&(e.retries-1) == 0
}

// settled forgets the retries: a run has had a result, or the entry is let go.
func (e *entry) settled() {
	e.retries = 0
	if e.contended {
		e.contended = false
		e.obs.stats.contended.Add(-1)
	}
}

// release calls done. It may be called again.
func (e *entry) release() {
	if e.done != nil {
		e.done()
		e.done = nil
	}
}

// waitHeap has the entry whose backoff ends first on top.
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

// restore makes a heap of it again after entries were taken out of the middle.
func (h *waitHeap) restore() {
	for i, e := range *h {
		e.index = i
	}
	heap.Init(h)
}

var _ heap.Interface = (*waitHeap)(nil)
