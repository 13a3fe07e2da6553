package writers

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

// The interface of the two actors: what may be sent to them, on any goroutine, and their
// figures. Only callers that are not actors, such as an installer of snapshots, wait for a
// commit.

// Pair is a node's log actor and its state actor.
type Pair struct {
	system     *actor.ActorSystem
	log, state *actor.PID

	logCounters, stateCounters counters
}

// counters are the figures of a writer that other goroutines may read.
type counters struct {
	queued  atomic.Int64 // writes sent and not answered
	batches metrics.Sizes
	took    metrics.Durations // of a batch
	full    atomic.Bool       // writes wait for disk space or another resource for files
}

// Stats are figures of one writer since it was started.
type Stats struct {
	Queued  int64             // writes that wait or are under way
	Batches metrics.Histogram // writes per batch
	Took    metrics.Histogram // duration of a batch
}

func (c *counters) read() Stats {
	return Stats{c.queued.Load(), c.batches.Read(), c.took.Read()}
}

// Write is one request. An actor executes requests in the order of their arrival.
type Write struct {
	Append *Append      // to the log actor ...
	Batch  *store.Batch // ... or to the state actor
	Done   func(error)  // called on the actor's goroutine with the outcome; must not block
	Stream *Stream      // nil: it depends on no other
	Fence  bool         // nothing sent later is visible when Done is called
}

// empty reports whether the request has nothing to write: it is answered after those before it.
func (w *Write) empty() bool {
	return w.Append != nil && len(w.Append.Entries) == 0 && w.Append.Hard == nil && w.Append.Truncate == 0
}

// Append is an addition to one replica's log, or nothing: then Done reports that the earlier ones are
// durable.
type Append struct {
	Tablet   uint64
	Entries  []*raftpb.Entry
	Hard     *raftpb.HardState // nil: unchanged
	Truncate uint64            // removes entries up to here; 0: none
}

// size estimates the bytes that the request adds to a batch.
func (w *Write) size() (n int) {
	if w.Append == nil {
		return w.Batch.Size()
	}
	for _, e := range w.Append.Entries {
		n += len(e.Data)
	}
	return n
}

// Stream is the sequence of one replica's writes, each of which depends on those before it.
// After a permanently refused one none is executed, since the replica's log would have a
// gap. Other replicas' writes continue.
type Stream struct{ refused atomic.Pointer[error] }

func (s *Stream) refuse(err error) {
	if s != nil {
		s.refused.Store(&err)
	}
}

// err returns why the stream has ended, or nil.
func (s *Stream) err() error {
	if s == nil {
		return nil
	}
	if err := s.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Spawn starts the two actors over the store. Their queues are unbounded, because admission
// is bounded at the tablets.
func Spawn(
	system *actor.ActorSystem, st *store.Store, cfg actorkit.BatchConfig, logger *slog.Logger,
	opts ...actor.PropsOption,
) *Pair {
	toLog := func(writes []*Write) error { return appendAll(st, writes) }
	toState := func(writes []*Write) error { return applyAll(st, writes) }
	return spawn(system, toLog, toState, cfg, logger, opts...)
}

// spawn starts a writer for the log and one for the state, which commit batches of writes by toLog and
// toState.
func spawn(
	system *actor.ActorSystem, toLog, toState func([]*Write) error, cfg actorkit.BatchConfig,
	logger *slog.Logger, opts ...actor.PropsOption,
) *Pair {
	p := &Pair{system: system}
	start := func(counters *counters, commit func([]*Write) error) *actor.PID {
		return system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &writer{
				commit: commit, batch: actorkit.NewBatcher[*Write](cfg), counters: counters,
				logger: logger,
			}
		}, opts...))
	}
	p.log = start(&p.logCounters, toLog)
	p.state = start(&p.stateCounters, toState)
	return p
}

// appendAll appends all writes in one frame of the log, which is synced once.
func appendAll(st *store.Store, writes []*Write) error {
	b := &raftlog.Batch{}
	for _, w := range writes {
		a := w.Append
		b.Append(a.Tablet, a.Entries, a.Hard)
		if a.Truncate > 0 {
			b.Truncate(a.Tablet, a.Truncate)
		}
	}
	return st.Append(b)
}

// applyAll makes everything visible.
func applyAll(st *store.Store, writes []*Write) error {
	batches := make([]*store.Batch, len(writes))
	for i, w := range writes {
		batches[i] = w.Batch
	}
	return st.StateWriter().Commit(batches)
}

// Send sends the write to the log actor if it is an Append, otherwise to the state actor.
// It does not block.
func (p *Pair) Send(w *Write) {
	to, counters := p.state, &p.stateCounters
	if w.Append != nil {
		to, counters = p.log, &p.logCounters
	}
	counters.queued.Add(1)
	p.system.Root.Send(to, w)
}

// Commit applies a batch through the state actor, in order, and waits for it. Actors must not call
// it.
func (p *Pair) Commit(b *store.Batch) error { return p.wait(&Write{Batch: b}) }

// wait sends the write and waits for its outcome.
func (p *Pair) wait(w *Write) error {
	done := make(chan error, 1)
	w.Done = func(err error) { done <- err }
	p.Send(w)
	return <-done
}

// Barrier returns when everything sent before it is written, with the error that stopped
// one of the actors, if any.
func (p *Pair) Barrier() error {
	if err := p.wait(&Write{Append: &Append{}}); err != nil {
		return err
	}
	return p.Commit(&store.Batch{})
}

// Full reports whether writes wait for disk space: avoidable writes should not be sent.
func (p *Pair) Full() bool { return p.logCounters.full.Load() || p.stateCounters.full.Load() }

// GiveUp makes writes that wait for disk space fail, now and from now on. A node that stops
// calls it, so that nothing waits for space that may never be freed.
func (p *Pair) GiveUp() {
	p.system.Root.Send(p.log, &giveUp{})
	p.system.Root.Send(p.state, &giveUp{})
}

// Stop stops the actors after they have written everything sent before, the log actor first. Writes
// that wait for disk space get one more attempt, and then fail.
func (p *Pair) Stop() error {
	err := p.system.Root.PoisonFuture(p.log).Wait()
	if stopped := p.system.Root.PoisonFuture(p.state).Wait(); err == nil {
		err = stopped
	}
	return err
}

// Stats returns the figures of the log actor and of the state actor.
func (p *Pair) Stats() (log, state Stats) {
	return p.logCounters.read(), p.stateCounters.read()
}
