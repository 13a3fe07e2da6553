package observer

import (
	"github.com/asynkron/protoactor-go/actor"
)

// This file runs user code in actors of its own, so that neither a function that blocks
// nor one that panics holds up the dispatcher. An actor owns its run until it has sent
// the outcome; the dispatcher bounds how many there are. A run that is overdue has two:
// the one in the user's function, which may never return, and one that records the
// failure.

// Messages of an invocation actor: it gets exactly one, handles it, and ends.
type (
	// begin: do the run, then tell the dispatcher how it ended.
	begin struct {
		run        *run
		dispatcher *actor.PID
	}
	// report: the run is overdue and still goes on; count it as failed.
	report struct {
		run        *run
		dispatcher *actor.PID
	}
)

// invocation is the actor of one run (design section 7). It may block, in user code too:
// nothing else is sent to it.
type invocation struct{}

// Receive does the one thing that the actor was spawned for.
func (invocation) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *begin:
		invoke(c, m)
	case *report:
		defer c.Stop(c.Self())
		out := outcome{kind: failed}
		// The dispatcher hears of it even if the client panics.
		defer func() { c.Send(m.dispatcher, &reported{run: m.run, out: out}) }()
		out = m.run.report(m.run.tx.StartTS())
	}
}

// invoke answers whatever happens: also when the function ends the goroutine instead of
// returning.
func invoke(c actor.Context, m *begin) {
	b := newBatch(m.run)
	returned := false
	defer func() {
		// The function ended the goroutine, or something around it panicked.
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
