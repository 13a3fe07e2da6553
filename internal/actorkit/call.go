package actorkit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// Errors of Ask and Tell. With ErrOverloaded and ErrStopped from Tell the request was
// surely not handled; ErrStopped from Ask means the actor ended before it answered: the
// outcome is unknown.
var (
	ErrOverloaded = errors.New("actorkit: queue limit reached")
	ErrStopped    = errors.New("actorkit: actor stopped")
)

// Result is an answer: a value or an error.
type Result[A any] struct {
	Value A
	Err   error
}

// Call is a request in its in-process envelope. The request message is shared by pointer
// and must not be changed after it has been sent. The actor answers exactly once by
// Reply; further answers are dropped.
type Call[Q, A any] struct {
	Req Q
	// Deadline is when the caller stops waiting; zero if it never does. The actor may
	// drop work past it.
	Deadline time.Time
	// Bypass: not counted against the queue limit (commits, rollbacks: a full actor must
	// be able to finish).
	Bypass bool
	// Note is the actor's own, for what it has found out about the call. Senders leave it 0.
	Note uint64

	answered atomic.Bool
	bytes    int64 // admitted by the port
	port     *Port[Q, A]
	answer   chan Result[A]
	then     func(Result[A])
}

// Reply answers the call. It never blocks. Safe from any goroutine.
func (c *Call[Q, A]) Reply(value A) { c.finish(Result[A]{Value: value}) }

// Fail answers the call with an error.
func (c *Call[Q, A]) Fail(err error) { c.finish(Result[A]{Err: err}) }

func (c *Call[Q, A]) finish(r Result[A]) {
	if !c.answered.CompareAndSwap(false, true) {
		return
	}
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

// Dead answers a call that reached nobody.
func (c *Call[Q, A]) Dead() { c.Fail(ErrStopped) }

// Port is how others reach an actor that takes Call[Q, A]: it bounds admission
// (QueueLimit), so the actor's mailbox is bounded although protoactor's is not. A Port
// may be used by any number of goroutines.
type Port[Q, A any] struct {
	system  *actor.ActorSystem
	pid     *actor.PID
	limit   int64
	queued  atomic.Int64
	answers sync.Pool // of chan Result[A], of calls that were answered

	size     func(Q) int // nil: requests are small
	maxBytes int64
	bytes    atomic.Int64
}

// BoundBytes makes the port also bound the memory that admitted requests hold, by their
// size in bytes. Call it before the port is used.
func (p *Port[Q, A]) BoundBytes(limit int, size func(Q) int) {
	p.size, p.maxBytes = size, int64(limit)
}

// NewPort returns a port to pid. limit ≤ 0 means DefaultQueueLimit.
func NewPort[Q, A any](system *actor.ActorSystem, pid *actor.PID, limit int) *Port[Q, A] {
	if limit <= 0 {
		limit = DefaultQueueLimit
	}
	return &Port[Q, A]{system: system, pid: pid, limit: int64(limit)}
}

// PID is the actor's process id.
func (p *Port[Q, A]) PID() *actor.PID { return p.pid }

// Queued is how many calls are admitted and not yet answered.
func (p *Port[Q, A]) Queued() int { return int(p.queued.Load()) }

// Tell sends the request; then is called exactly once with the answer, on the answering
// goroutine, and must not block. If Tell returns an error, then is not called and nothing
// was sent.
func (p *Port[Q, A]) Tell(req Q, deadline time.Time, bypass bool, then func(Result[A])) error {
	c := &Call[Q, A]{Req: req, Deadline: deadline, Bypass: bypass, then: then}
	return p.send(c)
}

// Ask sends the request and waits for the answer or the end of ctx. After ctx has ended
// the outcome is unknown.
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
	if ended == nil { // a plain wait costs less
		r := <-answer
		p.answers.Put(answer)
		return r.Value, r.Err
	}
	select {
	case r := <-answer:
		p.answers.Put(answer) // there was one answer, and there will be no other
		return r.Value, r.Err
	case <-ended:
		return none, ctx.Err()
	}
}

func (p *Port[Q, A]) send(c *Call[Q, A]) error {
	if !c.Bypass {
		if p.queued.Add(1) > p.limit {
			p.queued.Add(-1)
			return ErrOverloaded
		}
		if p.size != nil {
			c.bytes = int64(p.size(c.Req))
			if total := p.bytes.Add(c.bytes); total > p.maxBytes && total > c.bytes { // one alone always fits
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
