package tablet

import (
	"log/slog"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/metrics"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// This file has the node's two writing actors as tablets see them. A tablet sends writes
// in its turns and never waits: done brings the outcome back as a message. Only callers
// that are no actors, such as an installer, wait for a commit. Each actor keeps the order
// in which writes came to it; between the two there is none, but a tablet applies an
// entry only after Raft has committed it.

// Writers are the two actors through which all tablets of a node write to its store: the log
// actor appends to the Raft logs, and the state actor applies. Each drains what waits in its
// mailbox into one write and then tells each who asked (group commit across tablets, design
// section 3). Neither waits for the other: what Raft has committed is applied while the next
// appends are being synced.
type Writers struct {
	system     *actor.ActorSystem
	log, state *actor.PID

	logStats, stateStats writerStats
}

// writerStats is what other goroutines may read of a writer.
type writerStats struct {
	queued  atomic.Int64 // writes sent and not answered
	batches metrics.Sizes
	took    metrics.Durations // of a batch
	full    atomic.Bool       // writes wait for room on the disk
}

// WriterStats are figures of one writer since it began.
type WriterStats struct {
	Queued  int64             // writes that wait or are under way
	Batches metrics.Histogram // writes that were carried out together
	Took    metrics.Histogram // how long that took
}

func (s *writerStats) read() WriterStats {
	return WriterStats{s.queued.Load(), s.batches.Read(), s.took.Read()}
}

// write is one request. An actor carries requests out in the order of their arrival. done
// is called on the actor's goroutine with the outcome and must not block.
type write struct {
	append *logAppend   // to the log actor ...
	batch  *store.Batch // ... or to the state actor
	done   func(error)
	stream *writeStream // nil: it depends on no other
	fence  bool         // nothing that was sent later is visible when done is called
}

// logAppend is what the log actor adds to one replica's log.
type logAppend struct {
	tablet   uint64
	entries  []*raftpb.Entry
	hard     *raftpb.HardState // nil: unchanged
	truncate uint64            // entries up to here go; 0: none
}

// addTo adds the entries, the HardState and the truncation to the frame.
func (a *logAppend) addTo(b *raftlog.Batch) {
	b.Append(a.tablet, a.entries, a.hard)
	if a.truncate > 0 {
		b.Truncate(a.tablet, a.truncate)
	}
}

// size returns about how many bytes the request adds to a batch.
func (w *write) size() (n int) {
	if w.append == nil {
		return w.batch.Size()
	}
	for _, e := range w.append.entries {
		n += len(e.Data)
	}
	return n
}

// writeStream is what one replica writes, each write on top of those before it. After one
// that was refused for good none is carried out, since the replica's log would have a
// gap. Other replicas' writes go on.
type writeStream struct{ refused atomic.Pointer[error] }

func (s *writeStream) refuse(err error) {
	if s != nil {
		s.refused.Store(&err)
	}
}

// err returns why nothing more of the stream is carried out, or nil if it is.
func (s *writeStream) err() error {
	if s == nil {
		return nil
	}
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// SpawnWriters starts the two actors over the store. Their queues are unbounded, because
// what is admitted is bounded at the tablets.
func SpawnWriters(
	system *actor.ActorSystem, st *store.Store, cfg actorkit.BatchConfig, logger *slog.Logger,
	opts ...actor.PropsOption,
) *Writers {
	toLog := func(writes []*write) error { return appendAll(st, writes) }
	toState := func(writes []*write) error { return applyAll(st, writes) }
	return spawnWriters(system, toLog, toState, cfg, logger, opts...)
}

// spawnWriters is SpawnWriters with the functions that commit to the log and to the
// state.
func spawnWriters(
	system *actor.ActorSystem, toLog, toState func([]*write) error, cfg actorkit.BatchConfig,
	logger *slog.Logger, opts ...actor.PropsOption,
) *Writers {
	w := &Writers{system: system}
	spawn := func(stats *writerStats, commit func([]*write) error) *actor.PID {
		return system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &writer{
				commit: commit, batch: actorkit.NewBatcher[*write](cfg), stats: stats,
				logger: logger,
			}
		}, opts...))
	}
	w.log = spawn(&w.logStats, toLog)
	w.state = spawn(&w.stateStats, toState)
	return w
}

// appendAll appends all writes in one frame of the log, which is synced once.
func appendAll(st *store.Store, writes []*write) error {
	b := &raftlog.Batch{}
	for _, w := range writes {
		if w.append != nil {
			w.append.addTo(b)
		}
	}
	return st.Append(b)
}

// applyAll makes everything visible.
func applyAll(st *store.Store, writes []*write) error {
	batches := make([]*store.Batch, len(writes))
	for i, w := range writes {
		batches[i] = w.batch
	}
	return st.StateWriter().Commit(batches)
}

// append asks the log actor.
func (w *Writers) append(r *write) {
	w.logStats.queued.Add(1)
	w.system.Root.Send(w.log, r)
}

// apply asks the state actor.
func (w *Writers) apply(r *write) {
	w.stateStats.queued.Add(1)
	w.system.Root.Send(w.state, r)
}

// commit has the state actor apply a batch in its turn and waits for it. Actors must not
// call it.
func (w *Writers) commit(b *store.Batch) error {
	done := make(chan error, 1)
	w.apply(&write{batch: b, done: func(err error) { done <- err }})
	return <-done
}

// Barrier returns when everything sent before it is written, with the error that stopped
// one of the actors, if any.
func (w *Writers) Barrier() error {
	done := make(chan error, 1)
	w.append(&write{append: &logAppend{}, done: func(err error) { done <- err }})
	if err := <-done; err != nil {
		return err
	}
	return w.commit(&store.Batch{})
}

// Full reports whether writes wait for room on the disk: nothing should be sent that can
// be avoided.
func (w *Writers) Full() bool { return w.logStats.full.Load() || w.stateStats.full.Load() }

// GiveUp makes writes that wait for room on the disk fail, now and from now on. A node
// that stops calls it, so that nobody waits for room that may never come.
func (w *Writers) GiveUp() {
	w.system.Root.Send(w.log, &giveUp{})
	w.system.Root.Send(w.state, &giveUp{})
}

// Stop ends the actors after they have written what was sent to them before, the log
// actor first.
func (w *Writers) Stop() error {
	err := w.system.Root.PoisonFuture(w.log).Wait()
	if stopped := w.system.Root.PoisonFuture(w.state).Wait(); err == nil {
		err = stopped
	}
	return err
}

// Stats returns the figures of the log actor and of the state actor.
func (w *Writers) Stats() (log, state WriterStats) {
	return w.logStats.read(), w.stateStats.read()
}
