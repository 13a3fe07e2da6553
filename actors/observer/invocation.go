package observer

import (
	"github.com/asynkron/protoactor-go/actor"
)

// Invocation actors run user code outside the dispatcher, so that a function that blocks or
// panics does not delay it. An actor owns its batch until it has sent the outcomes; the dispatcher
// bounds the number of actors. An overdue run of a single cell has two actors: one in the user's
// function, which may never return, and one that records the failure.

// Messages of an invocation actor, which receives exactly one, handles it, and stops.
type (
	// begin starts the run and its batchPeers; their outcomes are sent to the dispatcher.
	begin struct {
		run        *run
		dispatcher *actor.PID
	}
	// report records the failure of an overdue run.
	report struct {
		run        *run
		dispatcher *actor.PID
	}
)

// invocation is the actor of one batch (design section 7). It may block, in user code too, because
// it receives no other message.
type invocation struct{}

// Receive handles the actor's only message.
func (invocation) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *begin:
		invoke(c, m)
	case *report:
		defer c.Stop(c.Self())
		out := outcome{kind: failed}
		// The dispatcher is notified even if the client panics.
		defer func() { c.Send(m.dispatcher, &reported{run: m.run, out: out}) }()
		out = m.run.report(m.run.tx.StartTS())
	}
}

// invoke sends an outcome in all cases, including when the function ends the goroutine instead of
// returning.
func invoke(c actor.Context, m *begin) {
	b := newBatch(m.run)
	returned := false
	defer func() {
		// The function ended the goroutine, or the code around it panicked.
		if !returned {
			b.exited()
		}
		c.Send(m.dispatcher, &finished{b})
		c.Stop(c.Self())
	}()
	if len(b.runs) == 1 {
		b.outs[0] = m.run.do()
	} else {
		b.do()
	}
	returned = true
}
