package tablet

import (
	"github.com/asynkron/protoactor-go/actor"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/percolator-go/percolator/actors/tablet/group"
	"github.com/percolator-go/percolator/actors/tablet/snapshot"
	"github.com/percolator-go/percolator/actors/tablet/writers"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/store"
)

// Connection of the actor to its group. Messages, ticks and completed writes go in, and each
// Ready is handled in the same turn. Its writes are under way in the writers until their
// answers return as messages: appended from the log actor and applied from the state
// actor. All of it runs on the tablet's goroutine, except Receive, which the node calls, and
// the done functions, which the writers call.

// appended is the log actor's answer: the entries and the HardState are synced, or, with
// err, could not be written: then this replica stops.
type appended struct {
	responses []*raftpb.Message
	proposed  uint64 // number of the last proposal before the write
	err       error
}

// groupHost is the group's view of the node. It does not block.
type groupHost struct {
	ticker *Ticker // nil: no ticker, and no other replica
	logs   *writers.Pair
	store  *store.Store
}

func (h groupHost) Down(node uint64) bool { return h.ticker != nil && h.ticker.isDown(node) }
func (h groupHost) Full() bool            { return h.logs.Full() }
func (h groupHost) NoRoom() error         { return noRoom(h.logs, h.store) }

// Receive sends a message from another node to the replica at pid, whose group checks it.
// It does not block. A message to a replica that has stopped is lost, as any message may
// be.
func Receive(system *actor.ActorSystem, pid *actor.PID, m *wire.RaftMessage) {
	system.Root.Send(pid, group.Decode(m))
}

// begin attaches the replica to IdleHints and the ticker and starts its group, in the
// actor's first turn.
func (t *Tablet) begin() {
	t.published.notice = t.cfg.IdleHints.attach(t.id)
	var boost bool
	t.ticking, boost = t.cfg.Ticker.attach(t.id, t.self.pid)
	// boost is set after a split or a merge whose leader was on this node: the new replica
	// campaigns immediately.
	t.group.Start(boost)
	t.ready()
}

// onTick advances the group's clock by one interval, and lets the group quiesce if nothing
// is under way.
func (t *Tablet) onTick() {
	if t.ticking != nil {
		t.ticking.due.Store(false)
	}
	// The tick was sent before the replica quiesced.
	if t.group.Quiesced() || t.failed != nil {
		return
	}
	// Tick reports a transfer that the group has abandoned.
	if t.group.Tick() {
		t.barrier.endTransfer(notTransferred(t.id))
		if x := t.barrier.op; x != nil && x.target != 0 {
			t.endExclusive()
		}
	}
	t.resumeChange()
	t.ready()
	t.group.MaybeQuiesce(t.busy())
	t.ready()
}

// onNodeChanged reports a node that is believed dead, or alive again, to the group.
func (t *Tablet) onNodeChanged(m *nodeChanged) {
	switch {
	case !m.down:
		t.group.NodeUp(m.node)
	case t.failed == nil:
		t.group.NodeDown(m.node)
		t.ready()
	}
}

// busy reports whether this leader has work under way that its group cannot see, so that
// the group must not quiesce. It is true while the replica does not serve as the leader.
func (t *Tablet) busy() bool {
	return !t.leading || t.failed != nil || t.barrier.op != nil ||
		len(t.pipeline.inflight)+len(t.pipeline.held)+t.reads.indexes.Len()+len(t.reads.queue.Calls())+
			t.waiting.len()+len(t.reservations.held)+t.batch.Len() > 0
}

// onIncoming passes a message from another replica to the group.
func (t *Tablet) onIncoming(in *group.Incoming) {
	if t.failed != nil {
		return
	}
	stale := t.group.Stale()
	// A descriptor shows that this replica no longer belongs to its group.
	if d := t.group.Step(in); d != nil {
		t.descriptor = d
		t.remove()
		return
	}
	if !stale && t.group.Stale() {
		t.cfg.Logger.Error("a replica's log lacks what it has acknowledged: its directory is an older copy, "+
			"or its disk has lost a synced write; the replica takes no further part and will be replaced",
			"tablet", t.id, "replica", t.replica, "leader_node", in.FromNode)
		t.host.Stale(t.id)
	}
	t.ready()
	t.overlap()
}

// ready handles the group's Readys until there are no more. Writes go to the writers in
// order; their answers return as messages.
func (t *Tablet) ready() {
	for t.failed == nil {
		rd, ok, err := t.group.Ready()
		if err != nil {
			t.fail(err)
			return
		}
		if !ok {
			return
		}
		// A replica that has lost leadership, or leads in another term, steps down first: the
		// rest of the Ready may belong to another leader.
		if t.leading && (!t.group.Elected() || t.reads.Term() != t.group.Term()) {
			t.stepDown(errLost)
		}
		if rd.LeaderChanged {
			t.onLeader()
		}
		t.tryLead()
		// A read waits until its index is visible, which it may be already.
		for _, r := range rd.Reads {
			t.reads.indexes.Answered(r)
		}
		if len(rd.Reads) > 0 {
			t.reads.dispatch()
		}
		for _, m := range rd.Messages {
			t.host.SendRaft(m)
		}
		for _, s := range rd.Snapshots {
			t.sendSnapshot(s)
		}
		if rd.Append != nil {
			t.append(rd.Append)
		}
		t.apply(rd.Apply, rd.ApplyDone)
	}
}

// onLeader reports the current leader, or that none is known, to the node, and answers a
// transfer that has ended.
func (t *Tablet) onLeader() {
	t.host.Following(t.id, t.group.LeaderNode())
	if t.group.LeaderKnown() && !t.group.Elected() {
		t.barrier.endTransfer(transferResponse(t.group.LeaderNode()))
	}
}

// snapshotMetadata returns the position of what is visible now, from which raft decides on a
// snapshot. The snapshot sent later may be newer. While entries are replayed after a start
// there is no snapshot: the rows may be ahead of the applied index.
func (t *Tablet) snapshotMetadata() (*raftpb.Snapshot, error) {
	if t.cfg.Snapshots == nil || t.failed != nil || t.group.Visible() < t.group.Replayed() {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	c, err := snapshot.Capture(t.store.Snap(), t.id)
	if err != nil {
		t.fail(err) // raft panics at any other error
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	c.Snap.Close()
	return c.Place(), nil
}

// sendSnapshot asks the node's sender to send a snapshot; a snapshotSent message reports its
// end. If the sender's queue is full, the group is notified immediately and asks again.
func (t *Tablet) sendSnapshot(s group.Snapshot) {
	if !t.cfg.Snapshots.Send(t.id, s, func(err error) {
		t.self.send(&snapshotSent{to: s.To, err: err})
	}) {
		t.group.SnapshotEnded(s.To, false)
	}
}

// snapshotSent reports that the sending of a snapshot has ended.
type snapshotSent struct {
	to  uint64
	err error
}

// onSnapshotSent reports the end of the sending to the group, which then probes the
// follower's progress, whether or not there was an error.
func (t *Tablet) onSnapshotSent(m *snapshotSent) {
	if m.err != nil {
		t.cfg.Logger.Warn("a snapshot was not installed; probing the replica's progress",
			"tablet", t.id, "replica", m.to, "error", m.err)
	}
	t.group.SnapshotEnded(m.to, true)
	t.ready()
}

// append sends the entries and HardState to the log actor. The responses, which acknowledge
// the write to Raft, are stepped once it is synced.
func (t *Tablet) append(a *group.Append) {
	m := &appended{responses: a.Done, proposed: t.pipeline.number}
	t.logs.Send(&writers.Write{
		Append: &writers.Append{
			Tablet: t.id, Entries: a.Entries, Hard: a.HardState, Truncate: a.Truncate,
		},
		Stream: &t.writes,
		Done: func(err error) {
			m.err = err
			t.self.send(m)
		},
	})
}

// onAppended handles the end of a write to the log. It notifies the group that the write is synced; a
// failed write stops the tablet.
func (t *Tablet) onAppended(m *appended) {
	if m.err == nil {
		t.pipeline.synced(m.proposed)
		m.err = t.group.Appended(m.responses)
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	t.ready()
	t.overlap()
}

// overlap evaluates the held mutations if the pipeline has room: an entry that has been committed
// makes room before it is applied.
func (t *Tablet) overlap() {
	if t.failed == nil && t.leading {
		t.takeHeld()
		t.ready()
	}
}
