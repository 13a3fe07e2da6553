package tablet

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/history"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	"github.com/percolator-go/percolator/actors/tablet/reads"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// The actor: its fields, the dispatch of its messages, and the admission of operations to a
// batch. Everything here runs in the tablet's turns, one message at a time, except Spawn and
// spawn, which run on the goroutine that starts the replica, before its first turn. Under
// way between turns are proposals (pipeline.go), reads that wait for an index or a worker
// (read.go), writes at the two writers (package writers), and requests to the oracle
// (firstread.go, onephase.go). Each of them returns as a message.

// Call is an operation on a tablet in its envelope.
type Call = actorkit.Call[*pb.TabletRequest, *pb.TabletResponse]

// Port delivers operations to a tablet.
type Port = actorkit.Port[*pb.TabletRequest, *pb.TabletResponse]

// Tablet is one replica of a tablet: the actor around its proposer. Only the actor's own
// turns touch its fields, except for those that never change after newTablet, and what reads
// shares with read workers.
type Tablet struct {
	proposer
	writes  writers.Stream // everything that this replica sends to logs
	self    *mailbox
	ticking *tickState // nil: no ticker

	batch     *actorkit.Batcher[*Call]
	published publishedHint
	history   history.History
	sizing    sizing // measurement of the tablet's size, and its split row
	loads     loads
	reads     readStages
	changes   []changesWaiting
	changed   bool    // changes were recorded in this turn
	inHand    []*Call // taken from a queue in this turn: answered even if the turn panics
}

// Spawn starts the replica of a tablet whose state is in the store, and returns its port.
func Spawn(system *actor.ActorSystem, st *store.Store, logs *writers.Pair, readers *reads.Pool,
	id uint64, host Host, cfg Config) (*Port, error) {
	return newTablet(system, st, logs, readers, id, host, cfg).spawn(system)
}

func newTablet(system *actor.ActorSystem, st *store.Store, logs *writers.Pair, readers *reads.Pool,
	id uint64, host Host, cfg Config) *Tablet {
	cfg = cfg.withDefaults()
	t := &Tablet{
		proposer: proposer{
			cfg: cfg, host: host, store: st, logs: logs, id: id,
			pipeline: pipeline{limit: cfg.Pipeline},
		},
		self:  &mailbox{root: system.Root},
		batch: actorkit.NewBatcher[*Call](cfg.Batch).Measured(&cfg.Metrics.Batches, &cfg.Metrics.Waits),
	}
	t.proposer.fail = t.fail
	t.reads = newReadStages(t, readers)
	t.history = history.New(func() { t.self.send(&collectStep{}) })
	t.memory = memory.New(memory.Config{
		Store: st, Limits: cfg.Limits, Indexed: cfg.Indexed, Recorded: cfg.Recorded,
		Background: func(j memory.Job) {
			t.reads.background.Submit(func() {
				j.Run()
				t.self.send(j)
			})
		},
	})
	t.reservations = reservations{memory: t.memory, held: map[mvcc.Timestamp]*reservedCommit{}}
	t.waiting = waitingOps{
		self: t.self, maxWait: cfg.MaxWait, reservations: &t.reservations, pipeline: &t.pipeline,
	}
	return t
}

// spawn opens the replica and starts its actor.
func (t *Tablet) spawn(system *actor.ActorSystem) (*Port, error) {
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("open tablet %d: %w", t.id, err)
	}
	props := actor.PropsFromProducer(func() actor.Actor {
		return t
	}, actorkit.Mailbox(), actorkit.On(t.cfg.Dispatcher))
	pid, err := system.Root.SpawnNamed(props, fmt.Sprintf("tablet-%d", t.id))
	if err != nil {
		return nil, fmt.Errorf("spawn the actor of tablet %d: %w", t.id, err)
	}
	port := actorkit.NewPort[*pb.TabletRequest, *pb.TabletResponse](system, pid,
		t.cfg.Batch.WithDefaults().QueueLimit)
	port.BoundBytes(actorkit.DefaultQueueBytes, requestSize)
	return port, nil
}

// Receive handles one message; each handler is in the file of its subject. A panic means a
// broken invariant: the replica stops, all its callers are answered, and its node reopens it
// from the store.
func (t *Tablet) Receive(c actor.Context) {
	defer t.endTurn()
	defer func() {
		if r := recover(); r != nil {
			t.fail(fmt.Errorf("%w: %v\n%s", ErrPanic, r, debug.Stack()))
			// Only inHand still refers to the calls that this turn had taken from its queues. Those
			// that were already answered ignore the second reply.
			replyAll(t.inHand, wire.Failure(pb.Error_CODE_UNKNOWN,
				"tablet %d panicked: the outcome is unknown", t.id))
			t.inHand = nil
		}
	}()
	t.dispatchMessage(c)
	// A handler may have stepped Raft without handling its output. Handle it now, so that no
	// message of Raft waits for the next turn.
	if t.group.HasMessages() {
		t.ready()
	}
	clear(t.inHand)
	t.inHand = t.inHand[:0]
}

// endTurn reports to the ticker whether the replica needs ticks, and publishes this turn's changes
// to IdleHints.
func (t *Tablet) endTurn() {
	// A replica that failed keeps its last state. One that was removed needs no more ticks.
	if t.ticking != nil && (t.failed == nil || t.removed()) {
		t.cfg.Ticker.keep(t.id, t.ticking, !t.group.Quiesced() && !t.removed())
	}
	t.published.update(t.cfg.IdleHints, t.memory, t.leading, t.descriptor)
}

// dispatchMessage calls the handler of the message.
func (t *Tablet) dispatchMessage(c actor.Context) {
	t.ticking.withdrawStatus(c.Message())
	switch m := c.Message().(type) {
	case *Call:
		t.onCall(c, m)
	case *actorkit.Flush:
		if t.batch.Due(m) {
			t.flush()
		}
	case *appended:
		t.onAppended(m)
	case *applied:
		t.onApplied(m)
	case *group.Incoming:
		t.onIncoming(m)
	case *tick:
		t.onTick()
	case *commitStamped:
		t.onCommitStamped(m)
	case *reads.Blocked:
		t.onBlockedReads(m)
	case *reads.StoreFailed:
		t.fail(m.Err)
	case *reads.WorkersFree:
		t.reads.submit()
	case memory.Job:
		if err := t.memory.Finish(m); err != nil {
			t.fail(err)
		}
	case *timestampsGranted:
		t.onTimestampsGranted(m)
	case *timestampGranted:
		m.then(m.at)
	case *collectStep:
		t.onCollectStep()
	case *history.Surveyed:
		t.onSurveyed(m)
	case *snapshotSent:
		t.onSnapshotSent(m)
	case *measureNext:
		if m.of == t.sizing.run {
			m.of.weigh(t.descriptor, &t.reads)
		}
	case *weighed:
		t.onWeighed(m)
	case *sweep:
		t.onSweep()
	case *resume:
		t.retryWaiting()
	case *endDelay:
		t.proposeDelayed()
		t.retryWaiting()
	case *nodeChanged:
		t.onNodeChanged(m)
	case *actor.Started:
		t.self.pid = c.Self()
		t.begin()
	case *actor.Stopping:
		t.stepDown(errStopping)
		t.cfg.IdleHints.detach(t.id, t.published.notice)
		t.published.notice = nil
		t.cfg.Ticker.detach(t.id, t.ticking)
	}
}

// ErrPanic is wrapped by the error of a replica that has stopped because one of its own
// invariants was broken, not the store's.
var ErrPanic = errors.New("tablet: panic")

var errStopping = errors.New("tablet: stopping")

// onCall admits an operation to the batch. Exceptions are operations that any replica answers, the
// oracle's request for its mark, and operations that must wait for something under way: its
// progress, not the marker, closes their batch.
func (t *Tablet) onCall(c actor.Context, call *Call) {
	op := wire.OperationOf(call.Req)
	if len(call.Req.Trace) > 0 {
		call.Span = t.cfg.Traces.Serve(call.Req, spanOf(op))
	}
	switch op.By {
	case wire.ByReplica:
		call.Reply(t.answerAtOnce(call.Req))
		return
	case wire.ByLeader:
		// The oracle has its leadership confirmed, one request at a time and for a batch of its own
		// callers: waiting for a batch here would delay all of them.
		t.inHand = append(t.inHand, call)
		t.reads.ask(t.filterServable([]*Call{call}))
		t.ready()
		return
	}
	if t.awaitChanges(call) {
		return
	}
	// One request to the oracle is under way at a time. Its answer closes the batch of the calls
	// that wait for it.
	if t.reads.first.asked && needsTimestamp(call) {
		t.reads.first.calls = append(t.reads.first.calls, call)
		return
	}
	if t.batch.Len() == 0 && !t.pipeline.free() && !op.Reads() {
		// The call is held until the pipeline has room, or until it may be evaluated early
		// (pipeline.due).
		if t.pipeline.held = append(t.pipeline.held, call); t.pipeline.due(t.group.Single()) {
			t.overlap()
		}
		return
	}
	// Reads are never held back by proposals in flight. Mutations are, unless a batch is
	// already open: then they join it, and flush moves them to held.
	gather(t.batch, call)
	if t.batch.Add(c, call, requestSize(call.Req)) {
		t.flush()
	}
}

// answerAtOnce answers requests that any replica may answer, whether or not it leads.
func (t *Tablet) answerAtOnce(req *pb.TabletRequest) *pb.TabletResponse {
	if c := req.GetChecksum(); c != nil {
		return checksumResponse(t.cfg.Checksums.result(t.id, c.Id, t.group.Visible()))
	}
	return t.status(req.GetStatus())
}

// flush handles one batch. Its reads share one ReadIndex, except first reads that wait for the
// oracle's message. Its mutations join those that are held, which are evaluated in the order of
// their arrival when the pipeline has room.
func (t *Tablet) flush() {
	calls := t.batch.Take()
	if len(calls) == 0 {
		return
	}
	t.inHand = append(t.inHand, calls...)
	t.counters.batches++
	t.loads.sample(calls)
	var brought []*Call // reads whose requests have a timestamp
	for _, call := range t.filterServable(calls) {
		switch {
		case needsTimestamp(call):
			t.reads.first.calls = append(t.reads.first.calls, call)
		case wire.OperationOf(call.Req).Reads():
			brought = append(brought, call)
		default:
			t.pipeline.held = append(t.pipeline.held, call)
		}
	}
	t.batch.GiveBack(calls)
	// First reads that get their timestamps immediately share the ReadIndex of the others,
	// which is requested only now, after the oracle.
	stamped := t.reads.first.stamp(t.host, t.memory, t.self)
	if len(brought) > 0 {
		stamped = append(brought, stamped...)
	}
	t.reads.ask(stamped)
	if t.pipeline.due(t.group.Single()) {
		t.mutateHeld()
	}
	t.ready()
}

// open reads the replica's state and log and creates its group.
func (t *Tablet) open() error {
	var err error
	if t.state, err = storedState(t.store, t.id); err != nil {
		return err
	}
	t.revertToInFlight()
	t.reads.RaiseSafepoint(t.appliedSafepoint)
	log, err := t.store.OpenLog(t.id)
	if err != nil {
		return err
	}
	log.SetConfState(t.conf)
	log.SetApplied(t.index)
	log.SetSnapshot(t.snapshotMetadata)
	t.group, err = group.New(group.Config{
		Tablet: t.id, Replica: t.replica, Node: t.cfg.NodeID, Descriptor: t.descriptor,
		ConfState: t.conf, Stale: t.cfg.Stale,
		Applied: t.index, Storage: log, Host: groupHost{t.cfg.Ticker, t.logs, t.store},
		MaxUncommitted: maxUncommitted, MaxInflight: maxInflight,
		MaxApply: maxProposalBytes, Leases: t.cfg.Leases, Logger: t.cfg.Logger,
	})
	t.barrier.group = t.group
	return err
}
