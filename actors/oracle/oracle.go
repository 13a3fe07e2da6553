package oracle

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Port is how requests for timestamps reach the oracle.
type Port = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// Call is one request in its envelope.
type Call = actorkit.Call[*pb.TimestampsRequest, *pb.TimestampsResponse]

// MaxCount is the most timestamps one request gets.
const MaxCount = 1 << 16

// Meta is the meta tablet as the oracle needs it. The function must not block; then is called once, on any goroutine.
type Meta interface {
	// Mark raises the persisted mark to raiseTo if that is above it (0: only reads it), and confirms leadership. It
	// answers with the term in which it did and with the mark.
	Mark(raiseTo uint64, then func(term, mark uint64, err error))
	// Confirmed confirms leadership without asking anybody, as the only voter of the meta tablet can. ok is false if it
	// cannot, or does not lead: then Mark is asked.
	Confirmed() (term, mark uint64, ok bool)
}

// Config is what an oracle is started with. Zero fields take defaults.
type Config struct {
	Batch  actorkit.BatchConfig
	Ahead  time.Duration    // how far the mark is raised ahead of the last timestamp; default 3 s
	Clock  func() time.Time // with a monotonic reading; default time.Now
	Logger *slog.Logger
	// Dispatcher runs the oracle's turns; nil: the library's own.
	Dispatcher *actorkit.Dispatcher
}

// Oracle is the running actor.
type Oracle struct {
	system *actor.ActorSystem
	port   *Port
	stats  stats
}

type stats struct{ last, served, batches atomic.Uint64 }

// Stats are the last timestamp given out, how many there were, and in how many batches.
func (o *Oracle) Stats() (last mvcc.Timestamp, served, batches uint64) {
	return mvcc.Timestamp(o.stats.last.Load()), o.stats.served.Load(), o.stats.batches.Load()
}

// Port is how requests reach it.
func (o *Oracle) Port() *Port { return o.port }

// Stop ends the actor; requests that wait are answered with an error.
func (o *Oracle) Stop() error { return o.system.Root.StopFuture(o.port.PID()).Wait() }

// Spawn starts the oracle over the meta tablet.
func Spawn(system *actor.ActorSystem, meta Meta, cfg Config) (*Oracle, error) {
	if cfg.Ahead <= 0 {
		cfg.Ahead = 3 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	o := &Oracle{system: system}
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &receiver{cfg: cfg, meta: meta, stats: &o.stats, batch: actorkit.NewBatcher[*Call](cfg.Batch)}
	}, actorkit.Mailbox(), actorkit.On(cfg.Dispatcher)), "oracle")
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	o.port = actorkit.NewPort[*pb.TimestampsRequest, *pb.TimestampsResponse](system, pid, cfg.Batch.WithDefaults().QueueLimit)
	return o, nil
}

// receiver is the actor. One batch is under way at a time; what arrives meanwhile is the next (§2.3: the batching
// increases with the load).
type receiver struct {
	cfg     Config
	meta    Meta
	stats   *stats
	batch   *actorkit.Batcher[*Call]
	self    *actor.PID
	root    *actor.RootContext
	closed  []*Call // the batch under way
	raising bool    // a raise of the mark is under way ahead of need

	// Memory of the term.
	term    uint64
	mark    mvcc.Timestamp // persisted
	last    mvcc.Timestamp // given out
	base    mvcc.Timestamp // physical time at take-over …
	tookAt  time.Time      // … and the clock then
	lastRun mvcc.Timestamp // last given out in any term: a check of invariant 1
}

// confirmed is the meta tablet's answer to Mark.
type confirmed struct {
	term, mark uint64
	err        error
	ahead      bool // nobody waits for this one
}

// errPanic is what callers get when the oracle has broken one of its own invariants: nothing was given out.
var errPanic = errors.New("oracle: panic; see the log")

// Receive dispatches. A panic drops the memory, as a change of the term does.
func (r *receiver) Receive(c actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("oracle: broken invariant; starting again from the persisted mark", "panic", p)
			r.term = 0
			r.finish(func(call *Call) { call.Fail(errPanic) })
		}
	}()
	r.dispatch(c)
}

func (r *receiver) dispatch(c actor.Context) {
	switch m := c.Message().(type) {
	case *Call:
		r.onCall(c, m)
	case *actorkit.Flush:
		if r.batch.Due(m) {
			r.next()
		}
	case *confirmed:
		r.onConfirmed(m)
	case *actor.Started:
		r.self, r.root = c.Self(), c.ActorSystem().Root
	case *actor.Stopping:
		for _, call := range append(r.closed, r.batch.Take()...) {
			call.Fail(actorkit.ErrStopped)
		}
	}
}

func (r *receiver) onCall(c actor.Context, call *Call) {
	if n := call.Req.GetCount(); n == 0 || n > MaxCount {
		call.Fail(fmt.Errorf("oracle: a request for %d timestamps; 1 to %d can be had", n, MaxCount))
		return
	}
	if r.batch.Add(c, call, 8) {
		r.next()
	}
}

// next closes the batch and confirms leadership for it.
func (r *receiver) next() {
	if r.closed != nil || r.batch.Len() == 0 {
		return
	}
	r.closed = r.batch.Take()
	if term, mark, ok := r.meta.Confirmed(); ok {
		r.onConfirmed(&confirmed{term: term, mark: mark})
		return
	}
	r.confirm(0, false)
}

func (r *receiver) confirm(raiseTo mvcc.Timestamp, ahead bool) {
	root, self := r.root, r.self
	r.meta.Mark(uint64(raiseTo), func(term, mark uint64, err error) {
		root.Send(self, &confirmed{term: term, mark: mark, err: err, ahead: ahead})
	})
}

func (r *receiver) onConfirmed(m *confirmed) {
	if m.ahead {
		r.raising = false
		if m.err == nil && m.term == r.term {
			r.mark = max(r.mark, mvcc.Timestamp(m.mark))
		}
		return
	}
	if m.err != nil {
		r.finish(func(call *Call) { call.Fail(m.err) })
		return
	}
	if m.term != r.term {
		r.takeOver(m)
	}
	r.mark = max(r.mark, mvcc.Timestamp(m.mark))
	r.serve()
}

// takeOver drops the memory of another term: the mark that this one read is all that is known.
func (r *receiver) takeOver(m *confirmed) {
	now := r.cfg.Clock()
	r.term, r.mark = m.term, mvcc.Timestamp(m.mark)
	r.last = r.mark
	r.base = max(r.mark+1, mvcc.TimestampAt(now.UnixMilli()))
	r.tookAt = now
	if r.mark == 0 { // a new cluster
		r.last = 0
	}
}

// physical is the time that timestamps follow; it never goes back.
func (r *receiver) physical() mvcc.Timestamp {
	since := r.cfg.Clock().Sub(r.tookAt)
	return r.base + mvcc.TimestampAt(max(since, 0).Milliseconds())
}

// serve answers the batch if all its timestamps lie below the mark; otherwise the mark is raised first.
func (r *receiver) serve() {
	total := mvcc.Timestamp(0)
	for _, call := range r.closed {
		total += mvcc.Timestamp(call.Req.GetCount())
	}
	first := max(r.last+1, r.physical())
	if end := first + total; end > r.mark {
		r.confirm(end+mvcc.TimestampAt(r.cfg.Ahead.Milliseconds()), false)
		return
	}
	if first <= r.lastRun {
		panic(fmt.Sprintf("oracle: timestamp %d after %d", first, r.lastRun)) // invariant 1 is broken
	}
	r.last = first + total - 1
	r.lastRun = r.last
	r.stats.last.Store(uint64(r.last)) // before anybody has them: what is above it was surely not given out
	r.finish(func(call *Call) {
		n := call.Req.GetCount()
		call.Reply(&pb.TimestampsResponse{First: uint64(first), Count: n})
		first += mvcc.Timestamp(n)
	})
	r.stats.served.Add(uint64(total))
	r.stats.batches.Add(1)
	if half := mvcc.TimestampAt(r.cfg.Ahead.Milliseconds() / 2); r.last+half > r.mark && !r.raising {
		r.raising = true
		r.confirm(r.last+2*half, true)
	}
}

// finish answers the batch under way and begins the next.
func (r *receiver) finish(answer func(*Call)) {
	calls := r.closed
	r.closed = nil
	for _, call := range calls {
		answer(call)
	}
	r.next()
}
