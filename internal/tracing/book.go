package tracing

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file has what a node keeps of traces between a transaction and the runs that it
// sets off. All its methods may be used concurrently: tablets add in their turns, read
// workers and scanners beside them, runs look up.

// maxTraced bounds a Book: some 6 MB at the most, and nothing before anything is traced.
const maxTraced = 1 << 16

// Book knows of recent sampled transactions to which span they belong, by the timestamps
// that are theirs alone: when they began and when they committed. A Raft entry has them
// beside its effects, so that every replica's node learns them: they outlive the leader, and
// a lock that somebody else rolls forward. A nil Book knows nothing.
type Book struct {
	*Tracer

	some atomic.Bool // there is anything: most requests need to know no more
	mu   sync.Mutex
	of   map[mvcc.Timestamp]Context
	ring []mvcc.Timestamp // the keys of of, the oldest at next once it is full
	next int
}

// NewBook returns an empty Book for a node whose spans the tracer starts; nil without one.
func NewBook(t *Tracer) *Book {
	if t == nil {
		return nil
	}
	return &Book{Tracer: t, of: make(map[mvcc.Timestamp]Context)}
}

// Add records what an entry says; a context that is none is left out.
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

// Of returns the span to which what was written at the timestamp belongs.
func (b *Book) Of(ts mvcc.Timestamp) (c Context, ok bool) {
	if b == nil || !b.some.Load() {
		return Context{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok = b.of[ts]
	return c, ok
}

// Traces returns what an entry is to say beside the effects of an operation; nil: nothing,
// as for almost all.
func (b *Book) Traces(req *pb.TabletRequest, effects []mvcc.Mutation) (out []*wire.Trace) {
	if b == nil {
		return nil
	}
	sent := req.GetTrace()
	if _, ok := Parse(sent); !ok {
		// Somebody else rolls the locks of a transaction forward.
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

// Tell adds to the notifications of a walk the traces that are known.
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

// Learn records what a walk has told of its notifications.
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

// Served begins the span of an operation that a tablet serves since some time; nil unless
// its transaction is sampled.
func (b *Book) Served(req *pb.TabletRequest, name string, began time.Time) *Span {
	if b == nil || len(req.GetTrace()) == 0 {
		return nil
	}
	of, ok := Parse(req.Trace)
	if !ok {
		return nil
	}
	s := b.Continue(of, name, began)
	s.Text("percolator.operation", wire.OperationOf(req).Name)
	s.Number("percolator.tablet", req.TabletId)
	return s
}

// Run begins the span of a run of an observer for a change: below that of the transaction
// that made the change, or a root if its trace is not known.
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
