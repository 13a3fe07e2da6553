package tablet

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/memory"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
	"github.com/percolator-go/percolator/store/raftlog"
)

// Call is an operation on a tablet in its envelope.
type Call = actorkit.Call[*pb.TabletRequest, *pb.TabletResponse]

// Port is how operations reach a tablet.
type Port = actorkit.Port[*pb.TabletRequest, *pb.TabletResponse]

// Host is what a tablet needs from its node. Its methods are called on the tablet's
// goroutine and must not block.
type Host interface {
	// Timestamps asks the oracle for n timestamps first, first+1, …; then is called once,
	// on any goroutine.
	Timestamps(n int, then func(first mvcc.Timestamp, err error))
	// TimestampsNow is Timestamps without waiting; ok is false if they cannot be had so.
	TimestampsNow(n int) (first mvcc.Timestamp, ok bool)
	// SplitApplied: the split is applied and durable; right must be started, left goes on.
	SplitApplied(left, right *pb.TabletDescriptor)
	// Hint: the cells have become dirty. It may be dropped.
	Hint(cells []mvcc.Cell)
	// Failed: the replica has stopped serving. After ErrPanic it may be stopped and
	// spawned again, once the writers have written what the replica sent it.
	Failed(tablet uint64, err error)
	// Leading: this replica leads the tablet and serves it, with this descriptor.
	Leading(d *pb.TabletDescriptor)
	// Following: this replica has learnt which node leads the tablet; 0: it knows of none now.
	Following(tablet, node uint64)
	// Changed: the tablet's replicas have changed, here; this is the descriptor now.
	// Every replica says so.
	Changed(d *pb.TabletDescriptor)
	// Removed: the replica is not of its tablet's group any more, and has stopped. It is
	// to be destroyed.
	Removed(tablet uint64)
	// SendRaft hands over a message for a replica on another node. It may be lost.
	SendRaft(m *wire.RaftMessage)
}

// Tablet is one replica of a tablet. All fields are the actor's own, except those that
// say otherwise.
type Tablet struct {
	cfg    Config
	host   Host
	store  *store.Store
	logs   *Writers
	writes *writeStream // all that this replica sends to logs
	self   *actor.PID
	root   *actor.RootContext

	id    uint64
	group *group.Group // the replica's Raft
	log   *raftlog.Replica
	// Replicated figures, as of the last entry handed to the state actor.
	state

	beat         *beat // nil: there is no ticker
	exclusive    *exclusive
	transferCall *Call // who waits for the end of a transfer of the leadership

	leading    bool          // leads, and an entry of the own term is visible
	servedTerm atomic.Uint64 // term while leading, else 0; read workers look at it
	// seenSafepoint is the safepoint as soon as it is proposed: a read worker whose Txn
	// may be without what was below it finds it here.
	seenSafepoint atomic.Uint64

	batch    *actorkit.Batcher[*Call]
	memory   *memory.Memory // what a leader holds of its rows
	posted   posted
	history  history
	sizing   sizing // what is known of the tablet's size
	loads    loads
	pipeline pipeline

	reservations reservations
	parked       parked // operations that wait for reservations or for effects in flight
	firstReads   firstReads
	asked        readIndexes // reads whose index is not visible yet ...
	reads        readQueue   // ... and those whose is
	background   *readLane   // surveys, measurements, confirmations and counts
	inHand       []*Call     // taken up in this turn: a panic must not leave them without an answer

	counters counters
	failed   error // storage fault, or errRemoved: the replica has stopped serving
}

// Spawn starts the replica of the tablet that the store holds state for, and returns the
// port to it.
func Spawn(system *actor.ActorSystem, st *store.Store, logs *Writers, readers *ReadPool, id uint64,
	host Host, cfg Config) (*Port, error) {
	return newTablet(system, st, logs, readers, id, host, cfg).spawn(system)
}

func newTablet(system *actor.ActorSystem, st *store.Store, logs *Writers, readers *ReadPool,
	id uint64, host Host, cfg Config) *Tablet {
	cfg = cfg.withDefaults()
	t := &Tablet{
		cfg: cfg, host: host, store: st, logs: logs, writes: &writeStream{}, id: id,
		root:  system.Root,
		batch: actorkit.NewBatcher[*Call](cfg.Batch),
		reads: readQueue{readLane: readers.reads.lane()}, background: readers.background.lane(),
		pipeline: pipeline{limit: cfg.Pipeline},
	}
	t.history = newHistory(func() { t.root.Send(t.self, &collectStep{}) })
	t.memory = memory.New(memory.Config{
		Store: st, Limits: cfg.Limits, Indexed: cfg.Indexed,
		Count: func(c *memory.Count) { t.background.submit(&countJob{t, c}) },
	})
	t.reservations = reservations{memory: t.memory, held: map[mvcc.Timestamp]*onePhase{}}
	return t
}

// spawn opens the replica and starts its actor.
func (t *Tablet) spawn(system *actor.ActorSystem) (*Port, error) {
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("tablet %d: %w", t.id, err)
	}
	props := actor.PropsFromProducer(func() actor.Actor {
		return t
	}, actorkit.Mailbox(), actorkit.On(t.cfg.Dispatcher))
	pid, err := system.Root.SpawnNamed(props, fmt.Sprintf("tablet-%d", t.id))
	if err != nil {
		return nil, fmt.Errorf("tablet %d: %w", t.id, err)
	}
	port := actorkit.NewPort[*pb.TabletRequest, *pb.TabletResponse](system, pid,
		t.cfg.Batch.WithDefaults().QueueLimit)
	port.BoundBytes(actorkit.DefaultQueueBytes, requestSize)
	return port, nil
}

// Receive dispatches; every message's handler is in the file of its group. A panic is a
// broken invariant: the replica stops with all its callers answered, and its node opens
// it anew from the store.
func (t *Tablet) Receive(c actor.Context) {
	defer t.endTurn()
	defer func() {
		if r := recover(); r != nil {
			t.fail(fmt.Errorf("%w: %v\n%s", ErrPanic, r, debug.Stack()))
			t.answerInHand()
		}
	}()
	t.dispatchMessage(c)
	if t.group.HasMessages() {
		t.ready()
	}
	clear(t.inHand)
	t.inHand = t.inHand[:0]
}

// answerInHand answers what the turn had taken up and a panic has left nowhere else.
func (t *Tablet) answerInHand() {
	for _, call := range t.inHand {
		call.Reply(failure(pb.Error_CODE_UNKNOWN, "tablet %d broke off: the outcome is unknown",
			t.id))
	}
	t.inHand = nil
}

// endTurn tells the ticker and the board what has changed in this turn.
func (t *Tablet) endTurn() {
	if t.beat != nil && (t.failed == nil || t.removed()) {
		t.cfg.Ticker.keep(t.id, t.beat, !t.group.Quiesced() && !t.removed())
	}
	t.publish()
}

func (t *Tablet) dispatchMessage(c actor.Context) {
	t.withdrawStatus(c.Message())
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
	case *granted:
		t.onGranted(m)
	case *blockedReads:
		t.onBlockedReads(m)
	case *storeFailed:
		t.fail(m.err)
	case *readersFree:
		t.submitReads()
	case *memory.Count:
		if err := t.memory.Counted(m); err != nil {
			t.fail(err)
		}
	case *stamped:
		t.onStamped(m)
	case *collectStep:
		t.onCollectStep()
	case *surveyed:
		t.onSurveyed(m)
	case *snapshotSent:
		t.onSnapshotSent(m)
	case *weighOn:
		t.onWeighOn(m)
	case *weighed:
		t.onWeighed(m)
	case *sweep:
		t.onSweep()
	case *resume:
		t.settle()
	case *nodeDown:
		if t.failed == nil {
			t.group.NodeDown(m.node)
			t.ready()
		}
	case *nodeUp:
		t.group.NodeUp(m.node)
	case *actor.Started:
		t.self = c.Self()
		t.begin()
	case *actor.Stopping:
		t.stepDown(errStopping)
		t.end()
	}
}

// ErrPanic is wrapped by the error of a replica that has stopped on a broken invariant of
// its own, not of the store.
var ErrPanic = errors.New("tablet: panic")

var errStopping = errors.New("tablet: stopping")

// onCall admits one operation to the batch, unless it is answered without one.
func (t *Tablet) onCall(c actor.Context, call *Call) {
	op := wire.OperationOf(call.Req)
	switch op.By {
	case wire.ByReplica:
		call.Reply(t.answerAtOnce(call.Req))
		return
	case wire.ByLeader:
		t.onMark(call)
		return
	}
	if t.firstReads.asked && needsTimestamp(call) {
		// the answer that is under way closes their batch
		t.firstReads.calls = append(t.firstReads.calls, call)
		return
	}
	if t.batch.Len() == 0 && !t.pipeline.free() && !op.Reads() {
		// What is in flight closes their batch, unless it may go early.
		if t.pipeline.held = append(t.pipeline.held, call); t.pipeline.due(t.group.Single()) {
			t.overlap()
		}
		return
	}
	gather(t.batch, call)
	if t.batch.Add(c, call, requestSize(call.Req)) {
		t.flush()
	}
}

// answerAtOnce answers what any replica may.
func (t *Tablet) answerAtOnce(req *pb.TabletRequest) *pb.TabletResponse {
	if c := req.GetChecksum(); c != nil {
		return t.checksum(c.Id)
	}
	return t.status(req.GetStatus())
}

// onMark confirms the leadership for the oracle at once. It has one such question under
// way at a time, which is for a batch of its own, and all that asks it for timestamps
// waits for this.
func (t *Tablet) onMark(call *Call) {
	t.inHand = append(t.inHand, call)
	t.read(t.stillOurs([]*Call{call}))
	t.ready()
}

// flush handles one batch: mutations become proposals in order, reads share one ReadIndex.
func (t *Tablet) flush() {
	calls := t.batch.Take()
	if len(calls) == 0 {
		return
	}
	t.inHand = append(t.inHand, calls...)
	t.counters.batches++
	t.loads.sample(calls)
	var reads, mutations []*Call
	now := time.Now()
	for _, call := range calls {
		op := wire.OperationOf(call.Req)
		switch refusal := t.refusal(op, call.Req); {
		case tooLate(call, now):
		case refusal != nil:
			call.Reply(refusal)
		case needsTimestamp(call):
			t.firstReads.calls = append(t.firstReads.calls, call)
		case op.Reads():
			reads = append(reads, call)
		default:
			mutations = append(mutations, call)
		}
	}
	t.batch.GiveBack(calls)
	t.read(append(reads, t.stamp()...))
	if t.pipeline.held = append(t.pipeline.held, mutations...); t.pipeline.due(t.group.Single()) {
		t.mutateHeld()
	}
	t.ready()
}

// mutateHeld takes on what has gathered while the pipeline was full: one batch, one
// entry. Under load the batches grow with what one trip to the disk takes; an idle tablet
// holds nothing back.
func (t *Tablet) mutateHeld() {
	if len(t.pipeline.held) == 0 {
		return
	}
	calls := t.pipeline.take()
	t.inHand = append(t.inHand, calls...)
	t.mutate(t.stillOurs(calls))
}

// refusal is the answer to an operation that this replica surely will not do; nil if it will.
func (t *Tablet) refusal(op *wire.Operation, req *pb.TabletRequest) *pb.TabletResponse {
	switch {
	case t.removed():
		return t.wrongTablet("no replica here any more, epoch %d", t.descriptor.Epoch)
	case t.failed != nil:
		return failure(pb.Error_CODE_UNAVAILABLE, "tablet %d has stopped: %v", t.id, t.failed)
	case !t.leading:
		t.group.SeekLeader()
		return t.notLeader("tablet %d is not led from here", t.id)
	case req.Epoch != 0 && req.Epoch != t.descriptor.Epoch:
		return t.wrongTablet("epoch %d, not %d", t.descriptor.Epoch, req.Epoch)
	}
	return t.checkRequest(op, req)
}

// fail stops the replica on a storage fault: it answers no more, and acknowledges nothing
// (design section 10).
func (t *Tablet) fail(err error) {
	if t.failed != nil {
		return
	}
	t.failed = err
	t.cfg.Logger.Error("tablet stopped", "tablet", t.id, "error", err)
	t.stepDown(err)
	t.host.Failed(t.id, err)
}
