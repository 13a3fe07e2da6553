package tablet

import (
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/broken"
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

// write asks the log actor for one atomic batch. Batches are written in the order of their arrival. done is called on the log
// actor's goroutine, or that of the sync, after the batch is visible and, unless it is lazy, synced, or with the error that stopped
// it; it must not block. A lazy one does not wait for the sync of others.
type write struct {
	batch  *store.Batch
	done   func(error)
	stream *writeStream // nil: it depends on no other
	fence  bool         // nothing that was sent later is visible when done is called
	log    bool         // an append to a Raft log, which may be visible before it is synced
}

// writeStream is what one replica writes, each batch on top of those before. After one that was
// refused for good none is written: the replica's log would have a gap. Other replicas' writes go
// on. The log actor's goroutine alone looks into it.
type writeStream struct{ refused error }

// SpawnLog starts the log actor over the writer. Its queue is unbounded: admission is bounded at the tablets.
func SpawnLog(system *actor.ActorSystem, w *store.Writer, cfg actorkit.BatchConfig, logger *slog.Logger, opts ...actor.PropsOption) *LogActor {
	l := &LogActor{system: system}
	props := actor.PropsFromProducer(func() actor.Actor {
		return &logReceiver{writer: w, sync: w.Sync, batch: actorkit.NewBatcher[*write](cfg), stats: &l.stats, logger: logger}
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
	sync   func() error // the writer's
	batch  *actorkit.Batcher[*write]
	failed error // the first storage error: nothing is written after it
	stats  *logStats
	logger *slog.Logger

	wake    func()     // sends the actor a synced
	syncing bool       // Raft logs, on a goroutine of its own
	result  chan error // of that sync
	gate    []*write   // what came after one that has to wait for that sync to end, and that one, in order
}

// synced tells the log actor that its sync has ended.
type synced struct{}

// Receive coalesces writes.
func (r *logReceiver) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *write:
		if err := r.refusal(m); err != nil {
			m.done(err)
			return
		}
		if r.batch.Add(c, m, m.batch.Size()) {
			r.commit()
		}
	case *actorkit.Flush:
		if r.batch.Due(m) {
			r.commit()
		}
	case *synced:
		r.onSynced()
	case *actor.Started:
		self, root := c.Self(), c.ActorSystem().Root
		r.wake, r.result = func() { root.Send(self, &synced{}) }, make(chan error, 1)
	case *actor.Stopping:
		r.commit()
		for r.syncing {
			r.onSynced()
		}
	}
}

// refusal is why a write is refused for good: no store takes such a batch, or one before it in
// its stream was refused.
func (r *logReceiver) refusal(w *write) error {
	if w.stream != nil && w.stream.refused != nil {
		return w.stream.refused
	}
	err := r.writer.Check(w.batch)
	if err != nil {
		r.logger.Error("a batch was refused; its tablet stops on this node", "error", err)
		if w.stream != nil {
			w.stream.refused = err
		}
	}
	return err
}

func (r *logReceiver) commit() { r.commitInOrder(r.batch.Take()) }

// commitInOrder commits what is up to a fence at once, then what is behind it. While a sync is under way only what needs none
// is committed; what does, and all behind it, waits for its end, and makes up the next.
func (r *logReceiver) commitInOrder(writes []*write) {
	if len(r.gate) > 0 {
		r.gate = append(r.gate, writes...)
		return
	}
	for len(writes) > 0 {
		n := 0
		for n < len(writes) && (n == 0 || !writes[n-1].fence) && (!r.syncing || writes[n].batch.Lazy()) {
			n++
		}
		if n == 0 {
			r.gate = writes
			return
		}
		r.commitTogether(writes[:n])
		writes = writes[n:]
	}
}

// commitTogether commits the writes at once and tells each of them: those to a Raft log when they are synced, the others, if
// they are lazy, at once. Anything else is synced before anybody sees it.
func (r *logReceiver) commitTogether(writes []*write) {
	r.stats.batches.Add(1)
	r.stats.requests.Add(uint64(len(writes)))
	batches, logs, others := make([]*store.Batch, len(writes)), []*write(nil), []*write(nil)
	synced := false
	for i, w := range writes {
		batches[i] = w.batch
		synced = synced || !w.log && !w.batch.Lazy()
		if w.batch.Lazy() {
			others = append(others, w)
		} else {
			logs = append(logs, w)
		}
	}
	write := r.writer.CommitUnsynced
	if synced || len(logs) == 0 {
		write, others, logs = r.writer.Commit, writes, nil
	}
	r.check(func() error { return write(batches) })
	if r.failed != nil {
		others, logs = writes, nil
	}
	r.tell(others)
	if len(logs) > 0 {
		r.beginSync(logs)
	}
}

// beginSync syncs what has been written, on a goroutine of its own, and tells the appends when it has.
func (r *logReceiver) beginSync(logs []*write) {
	r.syncing = true
	go func() {
		if broken.EarlyDurable {
			for _, w := range logs {
				w.done(nil)
			}
			logs = nil
		}
		err := r.sync()
		for _, w := range logs {
			w.done(err)
		}
		r.result <- err
		r.wake()
	}()
}

// onSynced goes on with what has waited for the end of the sync.
func (r *logReceiver) onSynced() {
	if !r.syncing {
		return // taken while the actor was stopping
	}
	err := <-r.result
	r.check(func() error { return err })
	r.syncing = false
	gate := r.gate
	r.gate = nil
	r.commitInOrder(gate)
}

// check does something that a storage error ends for good, unless one has.
func (r *logReceiver) check(do func() error) {
	if r.failed != nil {
		return
	}
	if r.failed = do(); r.failed != nil {
		r.logger.Error("the store refused a write; this node's tablets stop", "error", r.failed)
	}
}

func (r *logReceiver) tell(writes []*write) {
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
