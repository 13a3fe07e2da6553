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
	"github.com/percolator-go/percolator/internal/broken"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Port is how requests for timestamps reach the oracle.
type Port = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// Call is one request in its envelope.
type Call = actorkit.Call[*pb.TimestampsRequest, *pb.TimestampsResponse]

// MaxCount is the most timestamps one request gets: a 16th of a millisecond's.
const MaxCount = 1 << 14

// Meta is the meta tablet as the oracle needs it. The function must not block; then is
// called once, on any goroutine.
type Meta interface {
	// Mark raises the persisted mark to raiseTo if that is above it (0: only reads it),
	// and confirms leadership. It answers with the term in which it did and with the
	// mark. ErrNoRoom: the mark is as it was.
	Mark(raiseTo uint64, then func(term, mark uint64, err error))
	// Confirmed confirms leadership without asking anybody, as the only voter of the meta
	// tablet can. ok is false if it cannot, or does not lead: then Mark is asked.
	Confirmed() (term, mark uint64, ok bool)
}

// Config is what an oracle is started with. Zero fields take defaults.
type Config struct {
	Batch  actorkit.BatchConfig
	Ahead  time.Duration    // how far the mark is raised ahead of the last timestamp; default 3 s
	Clock  func() time.Time // with a monotonic reading; default time.Now
	Logger *slog.Logger
	// Judge decides, before the first timestamps of a term, whether time may follow this
	// node's clock (design section 6). An error: it may not, and whoever asked is told;
	// the next to ask have it decided anew. It must not block; then is called once, on
	// any goroutine. nil: it may. The only voter of the meta tablet is not judged: nobody
	// else could lead.
	Judge func(term uint64, then func(error))
	// Voters is how many other nodes vote in the meta tablet, as far as this one knows:
	// when they have become more, the clock is judged again. It must not block. nil: that
	// is not looked at.
	Voters func() int
	// Dispatcher runs the oracle's turns; nil: the library's own.
	Dispatcher *actorkit.Dispatcher
}

// Oracle is the running actor.
type Oracle struct {
	system *actor.ActorSystem
	port   *Port
	meta   Meta
	logger *slog.Logger
	memory memory
	stats  stats
}

type stats struct{ last, served, batches atomic.Uint64 }

// Stats are the last timestamp given out, how many there were, and in how many batches.
func (o *Oracle) Stats() (last mvcc.Timestamp, served, batches uint64) {
	return mvcc.Timestamp(o.stats.last.Load()), o.stats.served.Load(), o.stats.batches.Load()
}

// gave counts timestamps that are about to be given out.
func (s *stats) gave(first, total mvcc.Timestamp) {
	last := uint64(first + total - 1)
	for {
		seen := s.last.Load()
		if last <= seen || s.last.CompareAndSwap(seen, last) {
			break
		}
	}
	s.served.Add(uint64(total))
	s.batches.Add(1)
}

// Now gives out n timestamps first, first+1, … at once, if the meta tablet can confirm
// its leadership without asking anybody and they lie below the persisted mark. Otherwise
// ok is false, and the port is to be asked. Safe on any goroutine; it never waits for
// anything but another's turn in here.
func (o *Oracle) Now(n int) (first mvcc.Timestamp, ok bool) {
	if n < 1 || n > MaxCount {
		return 0, false
	}
	o.memory.Lock()
	defer o.memory.Unlock()
	term, mark, ok := o.meta.Confirmed() // of this request, which is here already (invariant 3)
	if broken.Unconfirmed && o.memory.term != 0 {
		term, ok = o.memory.term, true
	}
	if !ok {
		return 0, false
	}
	first, err := o.memory.take(term, mvcc.Timestamp(mark), mvcc.Timestamp(n))
	if err != nil {
		if errors.Is(err, errBroken) {
			o.logger.Error("oracle: starting again from the persisted mark", "error", err)
		}
		return 0, false
	}
	o.stats.gave(first, mvcc.Timestamp(n))
	if to := o.memory.raise(); to != 0 {
		o.system.Root.Send(o.port.PID(), &raise{to})
	}
	return first, true
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
	o := &Oracle{system: system, meta: meta, logger: cfg.Logger}
	o.memory.clock, o.memory.ahead = cfg.Clock, cfg.Ahead
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		return &receiver{cfg: cfg, meta: meta, memory: &o.memory, stats: &o.stats, batch: actorkit.NewBatcher[*Call](cfg.Batch)}
	}, actorkit.Mailbox(), actorkit.On(cfg.Dispatcher)), "oracle")
	if err != nil {
		return nil, fmt.Errorf("oracle: %w", err)
	}
	o.port = actorkit.NewPort[*pb.TimestampsRequest, *pb.TimestampsResponse](system, pid, cfg.Batch.WithDefaults().QueueLimit)
	return o, nil
}

// receiver is the actor. One batch is under way at a time; what arrives meanwhile is the
// next (§2.3: the batching increases with the load).
type receiver struct {
	cfg    Config
	meta   Meta
	memory *memory
	stats  *stats
	batch  *actorkit.Batcher[*Call]
	self   *actor.PID
	root   *actor.RootContext
	closed *closed // the batch under way; nil: none is
	rest   []*Call // of an earlier batch, which was too large: the first of the next

	waiting uint64 // timestamps asked for and not answered
	judged  judged
}

// closed is a batch that takes no more calls. Answers of the meta tablet and of the judge
// name the one that they were asked for, and serve no other: none that was closed later,
// in this incarnation of the actor or in the next (invariant 3).
type closed struct {
	calls []*Call
	spent bool // time stood still, and too little was left below the mark: it must be raised
}

// raise asks the actor to have the mark raised ahead of need: Now has found it low.
type raise struct{ to mvcc.Timestamp }

// confirmed is the meta tablet's answer to Mark.
type confirmed struct {
	of         *closed // nil: nobody waits for this one
	term, mark uint64
	err        error
	alone      bool // by the only voter
}

// resume has the next batch closed after a panic.
type resume struct{}

// errPanic is what callers get when the oracle has broken one of its own invariants:
// nothing was given out.
var errPanic = errors.New("oracle: panic; see the log")

// Receive dispatches. A panic drops the memory, as a change of the term does.
func (r *receiver) Receive(c actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("oracle: panic; starting again from the persisted mark", "panic", p)
			r.memory.Lock()
			r.memory.drop()
			r.memory.Unlock()
			r.answer(func(call *Call) { call.Fail(errPanic) })
			c.Send(c.Self(), resume{}) // not here: what panics again would end the actor
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
	case *judgement:
		r.onJudgement(m)
	case *raise:
		r.confirm(nil, m.to)
	case resume:
		r.next()
	case retry:
		r.onRetry(m)
	case *actor.Started:
		r.self, r.root = c.Self(), c.ActorSystem().Root
	case *actor.Stopping:
		stop := func(call *Call) { call.Fail(actorkit.ErrStopped) }
		r.answer(stop)
		for _, call := range append(r.rest, r.batch.Take()...) {
			stop(call)
		}
		r.rest = nil
	}
}

func (r *receiver) onCall(c actor.Context, call *Call) {
	if n := call.Req.GetCount(); n == 0 || n > MaxCount {
		call.Fail(fmt.Errorf("oracle: a request for %d timestamps; 1 to %d can be had", n, MaxCount))
		return
	}
	if r.waiting+uint64(call.Req.GetCount()) > maxWaiting {
		call.Fail(actorkit.ErrOverloaded)
		return
	}
	r.waiting += uint64(call.Req.GetCount())
	if r.batch.Add(c, call, 8) {
		r.next()
	}
}

// next closes the batch and confirms leadership for it.
func (r *receiver) next() {
	if r.closed != nil || len(r.rest)+r.batch.Len() == 0 {
		return
	}
	if r.closed = (&closed{calls: r.rest}); len(r.rest) == 0 {
		r.closed.calls = r.batch.Take()
	}
	r.rest = nil
	r.ask()
}

// ask confirms leadership for the batch under way.
func (r *receiver) ask() {
	if term, mark, ok := r.meta.Confirmed(); ok {
		r.onConfirmed(&confirmed{of: r.closed, term: term, mark: mark, alone: true})
		return
	}
	r.confirm(r.closed, 0)
}

// confirm has the mark raised, and leadership confirmed for the batch; nil: for nobody.
func (r *receiver) confirm(of *closed, raiseTo mvcc.Timestamp) {
	root, self := r.root, r.self
	r.meta.Mark(uint64(raiseTo), func(term, mark uint64, err error) {
		root.Send(self, &confirmed{of: of, term: term, mark: mark, err: err})
	})
}

// underWay reports whether an answer is for the batch that waits. One that has ended by a
// panic does not.
func (r *receiver) underWay(of *closed) bool {
	return r.closed != nil && (of == r.closed || broken.LateConfirmation)
}

func (r *receiver) onConfirmed(m *confirmed) {
	if m.of == nil {
		r.memory.Lock()
		defer r.memory.Unlock()
		r.memory.raised(m.term, mvcc.Timestamp(m.mark), m.err)
		return
	}
	if !r.underWay(m.of) {
		return
	}
	if m.err != nil && errors.Is(m.err, ErrNoRoom) && !r.closed.spent {
		r.stand()
		r.ask() // as many as there are below the mark
		return
	}
	if m.err != nil {
		r.finish(func(call *Call) { call.Fail(m.err) })
		return
	}
	if r.unjudged(m) {
		r.judge(m.term)
		return
	}
	r.serve(m)
}

// stand has time stand still.
func (r *receiver) stand() {
	r.memory.Lock()
	defer r.memory.Unlock()
	r.memory.stands = true
}

// serve answers the batch if all its timestamps lie below the mark; otherwise the mark is
// raised first.
func (r *receiver) serve(m *confirmed) {
	total := mvcc.Timestamp(0)
	for _, call := range r.closed.calls {
		total += mvcc.Timestamp(call.Req.GetCount())
	}
	first, raiseTo, err := r.take(m, total)
	var low *markTooLow
	var ahead *tooFarAhead
	switch {
	case errors.As(err, &ahead):
		if r.shorten(ahead.room) {
			r.serve(m)
		} else {
			r.awaitClock()
		}
		return
	case errors.As(err, &low):
		r.closed.spent = low.spent
		r.confirm(r.closed, low.raiseTo)
		return
	case errors.Is(err, errStale):
		r.confirm(r.closed, 0)
		return
	case err != nil:
		r.cfg.Logger.Error("oracle: starting again from the persisted mark", "error", err)
		r.finish(func(call *Call) { call.Fail(err) })
		return
	}
	r.stats.gave(first, total) // before anybody has them: what is above it was surely not given out
	r.finish(func(call *Call) {
		n := call.Req.GetCount()
		call.Reply(&pb.TimestampsResponse{First: uint64(first), Count: n})
		first += mvcc.Timestamp(n)
	})
	if raiseTo != 0 {
		r.confirm(nil, raiseTo)
	}
}

// take takes timestamps from the memory; raiseTo is what the mark is to be raised to
// ahead of need, or 0. The lock is given back by a panic, too.
func (r *receiver) take(m *confirmed, total mvcc.Timestamp) (first, raiseTo mvcc.Timestamp, err error) {
	r.memory.Lock()
	defer r.memory.Unlock()
	if first, err = r.memory.take(m.term, mvcc.Timestamp(m.mark), total); err == nil {
		raiseTo = r.memory.raise()
	}
	return first, raiseTo, err
}

// finish answers the batch under way and begins the next.
func (r *receiver) finish(answer func(*Call)) {
	r.answer(answer)
	r.next()
}

// answer answers the batch under way, if one is.
func (r *receiver) answer(answer func(*Call)) {
	of := r.closed
	r.closed = nil
	if of == nil {
		return
	}
	for _, call := range of.calls {
		r.waiting -= uint64(call.Req.GetCount())
		answer(call)
	}
}
