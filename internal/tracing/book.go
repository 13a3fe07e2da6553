package tracing

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// A node's record of traces, from a transaction to the observer runs that it causes. All
// methods may be called concurrently: tablets, read workers and scanners add, runs look up.

// maxTraced is the maximum number of entries of a Book: about 6 MB at most, and none until
// something is traced.
const maxTraced = 1 << 16

// Book maps the start and commit timestamps of recent sampled transactions to their spans. A
// Raft entry carries the traces with its effects, so that the node of every replica records
// them: they survive a leader change, and are known when another transaction rolls a lock forward.
// A nil Book is empty.
type Book struct {
	*Tracer

	some atomic.Bool // the book is not empty: a fast check for most requests
	mu   sync.Mutex
	of   map[mvcc.Timestamp]Context
	ring []mvcc.Timestamp // the keys of the map; the oldest is at next once it is full
	next int
}

// NewBook returns an empty Book for a node whose spans t starts, or nil if t is nil.
func NewBook(t *Tracer) *Book {
	if t == nil {
		return nil
	}
	return &Book{Tracer: t, of: make(map[mvcc.Timestamp]Context)}
}

// Add records the traces of an entry. It ignores invalid contexts, and timestamps that it already
// has.
func (b *Book) Add(traces ...*wire.Trace) {
	if b == nil || len(traces) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range traces {
		c, ok := Parse(t.GetContext())
		ts := mvcc.Timestamp(t.GetTs())
		if _, known := b.of[ts]; !ok || known {
			continue
		}
		if len(b.ring) < maxTraced {
			b.ring = append(b.ring, ts)
		} else {
			delete(b.of, b.ring[b.next])
			b.ring[b.next], b.next = ts, (b.next+1)%maxTraced
		}
		b.of[ts] = c
		b.some.Store(true)
	}
}

// Of returns the span of the transaction with the timestamp.
func (b *Book) Of(ts mvcc.Timestamp) (c Context, ok bool) {
	if b == nil || !b.some.Load() {
		return Context{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok = b.of[ts]
	return c, ok
}

// Traces returns the traces to add to an entry with the effects of an operation; nil for
// almost all.
func (b *Book) Traces(req *pb.TabletRequest, effects []mvcc.Mutation) (out []*wire.Trace) {
	if b == nil {
		return nil
	}
	sent := req.GetTrace()
	if _, ok := Parse(sent); !ok {
		// Another transaction may roll the locks forward: use the span of the locks' transaction.
		c, ok := b.Of(mvcc.Timestamp(req.GetResolveLock().GetStartTs()))
		if !ok {
			return nil
		}
		sent = append([]byte(nil), c[:]...)
	}
	var last mvcc.Timestamp
	for i := range effects {
		var ts mvcc.Timestamp
		switch m := &effects[i]; {
		case m.Notify != nil:
			ts = m.Notify.TS
		case m.Lock != nil:
			ts = m.Lock.StartTS
		case m.Intent != nil:
			ts = m.TS
		}
		if ts != 0 && ts != last {
			out, last = append(out, &wire.Trace{Ts: uint64(ts), Context: sent}), ts
		}
	}
	return out
}

// Tell adds the known traces to the notifications of a walk.
func (b *Book) Tell(walk *pb.WalkResponse) {
	if b == nil || !b.some.Load() {
		return
	}
	for _, e := range walk.GetEntries() {
		if c, ok := b.Of(mvcc.Timestamp(e.GetNotify().GetTs())); ok {
			e.Notify.Trace = append([]byte(nil), c[:]...)
		}
	}
}

// Learn records the traces of a walk's notifications.
func (b *Book) Learn(entries []*pb.WalkEntry) {
	if b == nil {
		return
	}
	for _, e := range entries {
		if n := e.GetNotify(); len(n.GetTrace()) > 0 {
			b.Add(&wire.Trace{Ts: n.Ts, Context: n.Trace})
		}
	}
}

// Serve starts the span of an operation that a tablet begins to serve; nil unless its
// transaction is sampled.
func (b *Book) Serve(req *pb.TabletRequest, name string) *Span {
	if b == nil {
		return nil
	}
	return b.Operation(req, name)
}

// Run starts the span of an observer run for a change: a child of the span of the transaction
// that made the change, or a root if its trace is unknown. It returns nil if the span is not
// sampled.
func (b *Book) Run(change mvcc.Timestamp, observer string) *Span {
	if b == nil {
		return nil
	}
	of, _ := b.Of(change)
	s := b.Continue(of, "percolator.observer", time.Now())
	s.Text("percolator.observer", observer)
	s.Number("percolator.change_ts", uint64(change))
	return s
}
