package tablet

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

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

// logStats is what others may see of the actor.
type logStats struct {
	batches, requests atomic.Uint64
	full              atomic.Bool // writes wait for room on the disk
}

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
		return &logReceiver{
			writer: w, sync: w.Sync, batch: actorkit.NewBatcher[*write](cfg), stats: &l.stats, logger: logger,
		}
	}, opts...)
	l.pid = system.Root.Spawn(props)
	return l
}

func (l *LogActor) send(w *write) { l.system.Root.Send(l.pid, w) }

// Barrier returns when all that was sent before it is committed, with the error that stopped the log actor, if any.
func (l *LogActor) Barrier() error {
	return l.commit(&store.Batch{})
}

// Full reports whether writes wait for room on the disk: nothing should be sent that need not be.
func (l *LogActor) Full() bool { return l.stats.full.Load() }

// GiveUp makes writes that wait for room on the disk fail, now and from now on. A node that stops
// calls it, so that nobody waits for what may never come.
func (l *LogActor) GiveUp() { l.system.Root.Send(l.pid, &giveUp{}) }

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
	failed error // the first storage error, a full disk apart: nothing is written after it
	stats  *logStats
	logger *slog.Logger

	wake    func(m any) // sends the actor a message
	syncing bool        // Raft logs, on a goroutine of its own
	result  chan error  // of that sync
	// gate holds, in order, what has to wait for the end of that sync, or for room on the disk, and
	// all that came after it.
	gate []*write

	retrying bool // a retry is on its way: the gate's first write waits for room
	givenUp  bool // nothing waits for room any more
}

// synced tells the log actor that its sync has ended.
type synced struct{}

// retry has the log actor look whether there is room for what waits for it.
type retry struct{}

// giveUp: see LogActor.GiveUp.
type giveUp struct{}

// retryInterval is how often the log actor looks for room on the disk while writes wait for it.
const retryInterval = 200 * time.Millisecond

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
	case *retry:
		r.retrying = false
		r.openGate()
	case *giveUp:
		r.giveUp()
	case *actor.Started:
		self, root := c.Self(), c.ActorSystem().Root
		r.wake, r.result = func(m any) { root.Send(self, m) }, make(chan error, 1)
	case *actor.Stopping:
		r.giveUp()
		for r.syncing {
			r.onSynced()
		}
	}
}

// giveUp has nothing wait for room any more. What is in the batch goes behind what waits, and so is
// given up with it: it may rest on that.
func (r *logReceiver) giveUp() {
	r.givenUp = true
	r.commit()
	r.openGate()
}

// openGate tries again what waits.
func (r *logReceiver) openGate() {
	gate := r.gate
	r.gate = nil
	r.commitInOrder(gate)
}

// refusal is why a write is refused for good: no store takes such a batch, or one before it in
// its stream was refused.
func (r *logReceiver) refusal(w *write) error {
	if w.stream != nil && w.stream.refused != nil && !broken.LogGap {
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

// commitInOrder commits what is up to a fence at once, then what is behind it. While a sync is under
// way only what needs none is committed; what does, and all behind it, waits for its end, and makes up
// the next. What the disk has no room for waits likewise: Raft does not hand it out again, and what is
// sent later rests on it.
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
		taken, err := r.commitWithRoom(writes[:n])
		if err != nil {
			r.awaitRoom(writes[taken:], err)
			return
		}
		writes = writes[n:]
	}
	if r.stats.full.Swap(false) {
		r.logger.Info("there is room on the disk again: what waited for it is written")
	}
}

// commitWithRoom commits the writes, or as many as the disk has room for: then err is why the
// others wait.
func (r *logReceiver) commitWithRoom(writes []*write) (taken int, err error) {
	for n := len(writes); n > 0; n /= 2 {
		full := r.commitTogether(writes[:n])
		if full == nil {
			return n, err
		}
		err = full
	}
	return 0, err
}

// awaitRoom keeps writes that the disk has no room for, and tries again after a while.
func (r *logReceiver) awaitRoom(writes []*write, err error) {
	if r.givenUp {
		for _, w := range writes {
			if w.stream != nil {
				w.stream.refused = err
			}
			w.done(err)
		}
		return
	}
	r.gate = writes
	if !r.stats.full.Swap(true) {
		r.logger.Error("the disk is full: this node writes nothing until there is room", "error", err)
	}
	if !r.retrying {
		r.retrying = true
		wake := r.wake
		time.AfterFunc(retryInterval, func() { wake(&retry{}) })
	}
}

// commitTogether commits the writes at once and tells each of them: those to a Raft log when they are synced, the others, if
// they are lazy, at once. Anything else is synced before anybody sees it. If it returns an error there is no room for them, and
// nothing was done.
func (r *logReceiver) commitTogether(writes []*write) error {
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
	var full error
	r.check(func() error {
		err := write(batches)
		if errors.Is(err, store.ErrDiskFull) {
			full, err = err, nil
		}
		return err
	})
	if full != nil && !broken.FullDiskAck {
		return full
	}
	r.stats.batches.Add(1)
	r.stats.requests.Add(uint64(len(writes)))
	if r.failed != nil {
		others, logs = writes, nil
	}
	r.tell(others)
	if len(logs) > 0 {
		r.beginSync(logs)
	}
	return nil
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
		r.wake(&synced{})
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
	r.openGate()
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
