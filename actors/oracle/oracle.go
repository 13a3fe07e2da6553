package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/tracing"
)

// This file has the actor. It owns the open batch and what waits for it; the memory is
// shared with Now, under a lock. Requests arrive through the Port. At most one batch waits
// for a confirmation, a judgement or the clock; besides it one raise of the mark ahead of
// need can be in flight.

// Port sends requests for timestamps to the oracle.
type Port = actorkit.Port[*pb.TimestampsRequest, *pb.TimestampsResponse]

// Call is one request in its envelope.
type Call = actorkit.Call[*pb.TimestampsRequest, *pb.TimestampsResponse]

// MaxCount is the most timestamps in one request: a 16th of those of a millisecond.
const MaxCount = 1 << 14

// Meta is the meta tablet. Its methods do not block.
type Meta interface {
	// Mark raises the persisted mark to raiseTo if that is higher, confirms leadership, and
	// then calls the callback then once, on any goroutine, with the term and the mark. A raiseTo of
	// 0 only reads the mark. After ErrNoRoom the mark is unchanged.
	Mark(raiseTo uint64, then func(term, mark uint64, err error))
	// Confirmed confirms leadership without messages to other nodes. The only voter of the meta
	// tablet can do so (alone is then true), and so can a leader that holds a lease. If ok is
	// false, leadership is not confirmed, and the caller must call Mark.
	Confirmed() (term, mark uint64, alone, ok bool)
}

// Config configures an oracle. Zero fields take their defaults.
type Config struct {
	Batch  actorkit.BatchConfig
	Clock  func() time.Time // its times have a monotonic reading; default time.Now
	Logger *slog.Logger
	// Judge decides, before the first timestamps of a term, whether timestamps may follow this
	// node's clock (design section 6). It must not block; it calls the callback then once, on any
	// goroutine. An error fails the waiting requests, and the next batch is judged again. If Judge
	// is nil every clock is accepted. The only voter of the meta tablet is not judged, because no
	// other node could lead.
	Judge func(term uint64, then func(error))
	// Voters returns the number of other nodes that vote in the meta tablet, as known to this one.
	// The clock is judged again when their number has grown. Voters must not block. If it is nil
	// the clock is judged once per term.
	Voters func() int
	// Dispatcher runs the actor's turns. If it is nil the library's default does.
	Dispatcher *actorkit.Dispatcher
	Tracer     *tracing.Tracer // nil: no tracing
}

// Oracle is the running actor.
type Oracle struct {
	system *actor.ActorSystem
	port   *Port
	meta   Meta
	cfg    Config
	memory memory
	stats  stats
}

type stats struct {
	last, served, batches atomic.Uint64
	mailbox               metrics.Sizes
	waits                 metrics.Durations
}

// Batches returns the histogram of requests per batch.
func (o *Oracle) Batches() metrics.Histogram { return o.stats.mailbox.Read() }

// Waits returns the histogram of requests' waits in the mailbox, observed once for each batch.
func (o *Oracle) Waits() metrics.Histogram { return o.stats.waits.Read() }

// Stats returns the last timestamp issued, how many were issued, and in how many batches.
func (o *Oracle) Stats() (last mvcc.Timestamp, served, batches uint64) {
	return mvcc.Timestamp(o.stats.last.Load()), o.stats.served.Load(), o.stats.batches.Load()
}

// recordIssued counts timestamps that are about to be issued. Now and the actor may call it
// at the same time, hence the loop.
func (s *stats) recordIssued(first, total mvcc.Timestamp) {
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

// Now issues the n timestamps first, …, first+n-1 at once if the meta tablet can confirm its
// leadership without messages to other nodes, no judgement of this node's clock is due, the mark is
// high enough and the clock has advanced far enough (maxLead). Otherwise ok is false,
// and the caller must use the port. Now may be called from any goroutine. It waits for nothing but
// the memory's lock.
func (o *Oracle) Now(n int) (first mvcc.Timestamp, ok bool) {
	if n < 1 || n > MaxCount {
		return 0, false
	}
	o.memory.Lock()
	defer o.memory.Unlock()
	term, mark, alone, ok := o.meta.Confirmed() // after the request has arrived
	if !ok || !alone && o.cfg.Judge != nil && !o.memory.judged.covers(o.cfg.electorate(term)) {
		return 0, false
	}
	first, err := o.memory.take(term, mvcc.Timestamp(mark), mvcc.Timestamp(n))
	if err != nil {
		if errors.Is(err, errBroken) {
			o.cfg.Logger.Error("oracle: starting again from the persisted mark", "error", err)
		}
		return 0, false
	}
	o.stats.recordIssued(first, mvcc.Timestamp(n))
	if to := o.memory.raise(); to != 0 {
		o.system.Root.Send(o.port.PID(), &raise{to})
	}
	return first, true
}

// Port returns the port for requests.
func (o *Oracle) Port() *Port { return o.port }

// Stop ends the actor. Waiting requests fail with actorkit.ErrStopped.
func (o *Oracle) Stop() error { return o.system.Root.StopFuture(o.port.PID()).Wait() }

// Spawn starts the oracle of the meta tablet. It fails if the name "oracle" is taken.
func Spawn(system *actor.ActorSystem, meta Meta, cfg Config) (*Oracle, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	o := &Oracle{system: system, meta: meta, cfg: cfg}
	o.memory.clock = cfg.Clock
	pid, err := system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor {
		batch := actorkit.NewBatcher[*Call](cfg.Batch).Measured(&o.stats.mailbox, &o.stats.waits)
		return &receiver{Oracle: o, batch: batch}
	}, actorkit.Mailbox(), actorkit.On(cfg.Dispatcher)), "oracle")
	if err != nil {
		return nil, fmt.Errorf("oracle: spawn the actor: %w", err)
	}
	limit := cfg.Batch.WithDefaults().QueueLimit
	o.port = actorkit.NewPort[*pb.TimestampsRequest, *pb.TimestampsResponse](system, pid, limit)
	return o, nil
}

// receiver is the actor. It handles one batch at a time; requests that arrive during it form the
// next (§2.3: the batching increases with the load).
type receiver struct {
	*Oracle // its port is set only after the actor has started
	batch   *actorkit.Batcher[*Call]
	self    *actor.PID
	root    *actor.RootContext
	closed  *closed // the present batch; nil if there is none
	rest    []*Call // calls for which an earlier batch had no timestamps; they form the next batch

	waiting uint64 // timestamps requested and not answered
}

// closed is a batch that accepts no more calls. The answers of the meta tablet and of the judge
// refer to the batch for which they were requested and serve no other, in this incarnation of the
// actor or the next.
type closed struct {
	calls []*Call
	spent bool // the clock is frozen and the reserve spent: only a raised mark helps
}

// raise is sent by Now, which has found the mark low: the actor is to raise it.
type raise struct{ to mvcc.Timestamp }

// confirmed is the meta tablet's answer to Mark or Confirmed.
type confirmed struct {
	of         *closed // nil for a raise ahead of need, which no batch waits for
	term, mark uint64
	err        error
	alone      bool // confirmed by the only voter
}

// resume closes the next batch after a panic.
type resume struct{}

// errPanic is the error of the calls whose batch ended by a panic. Nothing was issued.
var errPanic = errors.New("oracle: panic; see the log")

// Receive handles one message. A panic drops the memory, as a change of the term does.
func (r *receiver) Receive(c actor.Context) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("oracle: panic; starting again from the persisted mark", "panic", p)
			r.memory.Lock()
			r.memory.drop()
			r.memory.Unlock()
			r.answer(func(call *Call) { call.Fail(errPanic) })
			c.Send(c.Self(), resume{}) // by a message: a second panic here would not be recovered
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
		call.Fail(fmt.Errorf("oracle: request for %d timestamps; between 1 and %d are allowed", n,
			MaxCount))
		return
	}
	if r.waiting+uint64(call.Req.GetCount()) > maxWaiting {
		call.Fail(actorkit.ErrOverloaded)
		return
	}
	r.waiting += uint64(call.Req.GetCount())
	call.Span = r.cfg.Tracer.Below(call.Req.GetTrace(), "percolator.timestamps")
	if r.batch.Add(c, call, 8) {
		r.next()
	}
}

// next closes the next batch, unless one is present already, and confirms leadership for
// it.
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

// ask confirms leadership for the present batch.
func (r *receiver) ask() {
	if term, mark, alone, ok := r.meta.Confirmed(); ok {
		r.onConfirmed(&confirmed{of: r.closed, term: term, mark: mark, alone: alone})
		return
	}
	r.confirm(r.closed, 0)
}

// confirm raises the mark, unless raiseTo is 0, and confirms leadership for the batch. A nil batch
// means that none waits for it.
func (r *receiver) confirm(of *closed, raiseTo mvcc.Timestamp) {
	root, self := r.root, r.self
	r.meta.Mark(uint64(raiseTo), func(term, mark uint64, err error) {
		root.Send(self, &confirmed{of: of, term: term, mark: mark, err: err})
	})
}

// underWay reports whether the batch is the present one. A batch that ended by a panic is
// not.
func (r *receiver) underWay(of *closed) bool {
	return r.closed != nil && of == r.closed
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
	// If the mark cannot be raised, serve the timestamps that are left below it, once.
	if m.err != nil && errors.Is(m.err, ErrNoRoom) && !r.closed.spent {
		r.freeze()
		r.ask()
		return
	}
	if m.err != nil {
		r.finish(func(call *Call) { call.Fail(m.err) })
		return
	}
	if r.mustJudge(m) {
		r.judge(m.term)
		return
	}
	r.serve(m)
}

// freeze stops physical time until the mark can be raised again.
func (r *receiver) freeze() {
	r.memory.Lock()
	defer r.memory.Unlock()
	r.memory.frozen = true
}

// serve answers the batch if all its timestamps lie below the mark and near enough to
// physical time. Otherwise it raises the mark first, or shortens the batch, or waits for the clock.
func (r *receiver) serve(m *confirmed) {
	total := mvcc.Timestamp(0)
	for _, call := range r.closed.calls {
		call.Span.Event("confirmed")
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
	r.stats.recordIssued(first, total) // before the replies: Stats never lags what callers have
	r.finish(func(call *Call) {
		n := call.Req.GetCount()
		call.Reply(&pb.TimestampsResponse{First: uint64(first), Count: n})
		first += mvcc.Timestamp(n)
	})
	if raiseTo != 0 {
		r.confirm(nil, raiseTo)
	}
}

// take takes timestamps from the memory under its lock, which is released even by a panic. raiseTo
// is the value to which the mark must be raised ahead of need, or 0.
func (r *receiver) take(m *confirmed, total mvcc.Timestamp) (first, raiseTo mvcc.Timestamp,
	err error) {
	r.memory.Lock()
	defer r.memory.Unlock()
	if first, err = r.memory.take(m.term, mvcc.Timestamp(m.mark), total); err == nil {
		raiseTo = r.memory.raise()
	}
	return first, raiseTo, err
}

// finish answers the present batch and begins the next.
func (r *receiver) finish(answer func(*Call)) {
	r.answer(answer)
	r.next()
}

// answer calls answer for each call of the present batch, if there is one, and ends it.
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
