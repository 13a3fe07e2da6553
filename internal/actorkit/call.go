package actorkit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/tracing"
)

// Errors of Ask and Tell. A request that failed with ErrOverloaded has not been handled.
// ErrStopped, which Ask returns and Tell passes to its callback, means that the actor ended before
// it answered; the outcome is unknown.
var (
	ErrOverloaded = errors.New("actorkit: queue limit reached")
	ErrStopped    = errors.New("actorkit: actor stopped")
)

// Result is an answer: a value or an error.
type Result[A any] struct {
	Value A
	Err   error
}

// Call carries a request within a process. Sender and actor share the request; neither may
// change it after it was sent. The actor answers once, by Reply or Fail; further answers
// are dropped.
type Call[Q, A any] struct {
	Req Q
	// Deadline is the time by which the caller stops waiting; zero means that none is set. The actor
	// may drop the call after it.
	Deadline time.Time
	// Bypass exempts the call from the queue limit. Commits and rollbacks use it, since a full
	// actor waits for them.
	Bypass bool
	// Note is reserved for the actor. Senders leave it 0.
	Note uint64
	// Span is the actor's span of a traced call; the answer ends it. It is nil if the call is not
	// traced.
	Span *tracing.Span

	answered atomic.Bool
	bytes    int64           // counted in port.bytes
	port     *Port[Q, A]     // nil if Bypass
	answer   chan Result[A]  // of Ask; nil in calls of Tell
	then     func(Result[A]) // of Tell; nil in calls of Ask
}

// Reply answers the call. It never blocks and may be called from any goroutine.
func (c *Call[Q, A]) Reply(value A) { c.finish(Result[A]{Value: value}) }

// Fail answers the call with an error.
func (c *Call[Q, A]) Fail(err error) { c.finish(Result[A]{Err: err}) }

func (c *Call[Q, A]) finish(r Result[A]) {
	if !c.answered.CompareAndSwap(false, true) {
		return
	}
	c.Span.End()
	if c.port != nil && !c.Bypass {
		c.port.queued.Add(-1)
		c.port.bytes.Add(-c.bytes)
	}
	if c.then != nil {
		c.then(r)
		return
	}
	c.answer <- r // capacity 1, one answer: never blocks
}

// Dead implements Leftover: it fails the call with ErrStopped.
func (c *Call[Q, A]) Dead() { c.Fail(ErrStopped) }

// Port sends calls to an actor. It limits the unanswered calls, which bounds the actor's
// mailbox although protoactor's mailboxes have no bound. Its methods may be called
// concurrently.
type Port[Q, A any] struct {
	system  *actor.ActorSystem
	pid     *actor.PID
	limit   int64
	queued  atomic.Int64
	answers sync.Pool // of chan Result[A], each empty and used by no call

	size     func(Q) int // nil if bytes are not limited
	maxBytes int64
	bytes    atomic.Int64
}

// BoundBytes also limits the bytes that unanswered requests hold, as returned by size; a request
// of any size is admitted while no other is unanswered. Call it before the port is used.
func (p *Port[Q, A]) BoundBytes(limit int, size func(Q) int) {
	p.size, p.maxBytes = size, int64(limit)
}

// NewPort returns a port to pid. limit ≤ 0 means DefaultQueueLimit.
func NewPort[Q, A any](system *actor.ActorSystem, pid *actor.PID, limit int) *Port[Q, A] {
	return &Port[Q, A]{system: system, pid: pid, limit: int64(Positive(limit, DefaultQueueLimit))}
}

// PID returns the actor's process id.
func (p *Port[Q, A]) PID() *actor.PID { return p.pid }

// Queued returns the number of unanswered calls, excluding those that bypass the limit.
func (p *Port[Q, A]) Queued() int { return int(p.queued.Load()) }

// Tell sends the request and returns. then is called once with the answer, on the goroutine that
// answers, and must not block; if the actor panics on the request, it may never be called. If Tell
// returns an error, which is ErrOverloaded, the request was not sent and then is not called.
func (p *Port[Q, A]) Tell(req Q, deadline time.Time, bypass bool, then func(Result[A])) error {
	c := &Call[Q, A]{Req: req, Deadline: deadline, Bypass: bypass, then: then}
	return p.send(c)
}

// Ask sends the request and waits for the answer or the end of ctx. If ctx ends first it
// returns ctx's error, and the outcome is unknown.
func (p *Port[Q, A]) Ask(ctx context.Context, req Q, bypass bool) (A, error) {
	answer, _ := p.answers.Get().(chan Result[A])
	if answer == nil {
		answer = make(chan Result[A], 1)
	}
	c := &Call[Q, A]{Req: req, Bypass: bypass, answer: answer}
	c.Deadline, _ = ctx.Deadline()
	var none A
	if err := p.send(c); err != nil {
		return none, err
	}
	ended := ctx.Done()
	if ended == nil { // cheaper than a select
		r := <-answer
		p.answers.Put(answer)
		return r.Value, r.Err
	}
	select {
	case r := <-answer:
		p.answers.Put(answer) // a call is answered once, so the channel stays empty
		return r.Value, r.Err
	case <-ended:
		return none, ctx.Err()
	}
}

// send admits the call and sends it, or returns ErrOverloaded.
func (p *Port[Q, A]) send(c *Call[Q, A]) error {
	if !c.Bypass {
		if p.queued.Add(1) > p.limit {
			p.queued.Add(-1)
			return ErrOverloaded
		}
		if p.size != nil {
			c.bytes = int64(p.size(c.Req))
			// A single request is admitted whatever its size.
			if total := p.bytes.Add(c.bytes); total > p.maxBytes && total > c.bytes {
				p.bytes.Add(-c.bytes)
				p.queued.Add(-1)
				return ErrOverloaded
			}
		}
		c.port = p
	}
	p.system.Root.Send(p.pid, c)
	return nil
}
