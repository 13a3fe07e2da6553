package tablet

import (
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/store"
)

// LogActor is the store's one writer: it drains the appends and applies of all tablets that wait in its mailbox into one
// commit with one sync, then tells each of them (group commit across tablets, design section 3).
type LogActor struct {
	system *actor.ActorSystem
	pid    *actor.PID
	stats  logStats
}

type logStats struct{ batches, requests atomic.Uint64 }

// write asks the log actor for one atomic batch. done is called on the log actor's goroutine, in order of arrival, after
// the batch is synced and visible, or with the error that stopped it; it must not block.
type write struct {
	batch *store.Batch
	done  func(error)
	fence bool // nothing that was sent later is visible when done is called
}

// SpawnLog starts the log actor over the writer. Its queue is unbounded: admission is bounded at the tablets.
func SpawnLog(system *actor.ActorSystem, w *store.Writer, cfg actorkit.BatchConfig, logger *slog.Logger, opts ...actor.PropsOption) *LogActor {
	l := &LogActor{system: system}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &logReceiver{writer: w, batch: actorkit.NewBatcher[*write](cfg), stats: &l.stats, logger: logger}
	}, opts...)
	l.pid = system.Root.Spawn(props)
	return l
}

func (l *LogActor) send(w *write) { l.system.Root.Send(l.pid, w) }

// Barrier returns when all that was sent before it is committed, with the error that stopped the log actor, if any.
func (l *LogActor) Barrier() error {
	return l.commit(&store.Batch{})
}

// Stop ends the actor after it has written what was sent to it before.
func (l *LogActor) Stop() error { return l.system.Root.PoisonFuture(l.pid).Wait() }

// Stats are the commits so far and the requests that they held.
func (l *LogActor) Stats() (commits, requests uint64) {
	return l.stats.batches.Load(), l.stats.requests.Load()
}

type logReceiver struct {
	writer *store.Writer
	batch  *actorkit.Batcher[*write]
	failed error // the first storage error: nothing is written after it
	stats  *logStats
	logger *slog.Logger
}

// Receive coalesces writes.
func (r *logReceiver) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *write:
		if r.batch.Add(c, m, m.batch.Size()) {
			r.commit()
		}
	case *actorkit.Flush:
		if r.batch.Due(m) {
			r.commit()
		}
	case *actor.Stopping:
		r.commit()
	}
}

func (r *logReceiver) commit() { r.commitInOrder(r.batch.Take()) }

// commitInOrder commits what is up to a fence at once, then what is behind it.
func (r *logReceiver) commitInOrder(writes []*write) {
	for len(writes) > 0 {
		n := 1
		for n < len(writes) && !writes[n-1].fence {
			n++
		}
		r.commitTogether(writes[:n])
		writes = writes[n:]
	}
}

// commitTogether commits the writes at once and tells each of them.
func (r *logReceiver) commitTogether(writes []*write) {
	if r.failed == nil {
		batches := make([]*store.Batch, len(writes))
		for i, w := range writes {
			batches[i] = w.batch
		}
		r.failed = r.writer.Commit(batches)
		if r.failed != nil {
			r.logger.Error("the store refused a write; this node's tablets stop", "error", r.failed)
		}
	}
	r.stats.batches.Add(1)
	r.stats.requests.Add(uint64(len(writes)))
	for _, w := range writes {
		w.done(r.failed)
	}
}

// commit writes a batch in its turn and waits for it. Not for actors.
func (l *LogActor) commit(b *store.Batch) error {
	done := make(chan error, 1)
	l.send(&write{batch: b, done: func(err error) { done <- err }})
	return <-done
}
