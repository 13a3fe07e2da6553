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

// This file joins the actor to its group. Messages, ticks and ended writes go in, and
// what each Ready says is done in the same turn. The writes that it asks for are under
// way in the writers until their answers come back as messages, appended
// from the log actor and applied from the state actor. All of it runs on the tablet's
// goroutine, except Receive, which the node calls, and the done functions, which the
// writers call.

// appended is the log actor's answer: the entries and the HardState are synced, or err
// says why they never will be.
type appended struct {
	responses []*raftpb.Message
	err       error
}

// groupHost is what the group may ask about the node. It does not block.
type groupHost struct {
	ticker *Ticker // nil: there is none, and no other replica
	logs   *writers.Pair
	store  *store.Store
}

func (h groupHost) Down(node uint64) bool { return h.ticker != nil && h.ticker.isDown(node) }
func (h groupHost) Full() bool            { return h.logs.Full() }
func (h groupHost) NoRoom() error         { return noRoom(h.logs, h.store) }

// Receive sends a message of another node to the replica at pid, whose group checks it.
// It does not block. A message for a replica that has stopped is lost, as any message may
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
	// boost is set after a split whose leader was on this node: the new replica campaigns
	// at once.
	t.group.Start(boost)
	t.ready()
}

// onTick lets one interval pass for the group, and lets the group rest if nothing is
// under way.
func (t *Tablet) onTick() {
	if t.ticking != nil {
		t.ticking.due.Store(false)
	}
	// The tick was sent before the replica came to rest.
	if t.group.Quiesced() || t.failed != nil {
		return
	}
	// Tick reports a transfer that the group has given up.
	if t.group.Tick() {
		t.barrier.endTransfer(notTransferred(t.id))
		if x := t.barrier.op; x != nil && x.target != 0 {
			t.endExclusive()
		}
	}
	t.goOnChanging()
	t.ready()
	t.group.MaybeQuiesce(t.busy())
	t.ready()
}

// busy reports whether this leader has anything under way that its group does not know
// of, so that the group must not rest.
func (t *Tablet) busy() bool {
	return !t.leading || t.failed != nil || t.barrier.op != nil ||
		len(t.pipeline.inflight)+len(t.pipeline.held)+t.reads.indexes.Len()+len(t.reads.queue.Calls())+
			t.waiting.len()+len(t.reservations.held)+t.batch.Len() > 0
}

// onIncoming gives the group a message of another replica.
func (t *Tablet) onIncoming(in *group.Incoming) {
	if t.failed != nil {
		return
	}
	stale := t.group.Stale()
	// A descriptor says that this replica no longer belongs to its group.
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

// ready does what the group's Ready says, until there is no more. Writes go to the
// writers in order; their answers come back as messages.
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
		// A leader that is one no more, or that leads in another term, steps down before
		// anything else is looked at: what follows may belong to another leader.
		if t.leading && (!t.group.Elected() || t.reads.Term() != t.group.Term()) {
			t.stepDown(errLost)
		}
		if rd.LeaderChanged {
			t.onLeader()
		}
		t.tryLead()
		// A read waits for its index to be visible, which it may be already.
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

// onLeader tells the node which replica leads now, or that none is known to, and answers
// a transfer that has come to its end.
func (t *Tablet) onLeader() {
	t.host.Following(t.id, t.group.LeaderNode())
	if t.group.LeaderKnown() && !t.group.Elected() {
		t.barrier.endTransfer(transferResponse(t.group.LeaderNode()))
	}
}

// snapshotMetadata returns what raft needs to decide on a snapshot: the place of what is
// visible now. What is sent later may be newer. While entries are replayed after a start
// there is none: the rows may be ahead of the applied index.
func (t *Tablet) snapshotMetadata() (*raftpb.Snapshot, error) {
	if t.cfg.Snapshots == nil || t.failed != nil || t.group.Visible() < t.group.Replayed() {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	c, err := snapshot.Capture(t.store.Snap(), t.id)
	if err != nil {
		t.fail(err) // raft would panic
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	c.Snap.Close()
	return c.Place(), nil
}

// sendSnapshot has a snapshot sent by the node's sender; its end comes back as a
// snapshotSent. If too many wait, the group is told at once, and asks again.
func (t *Tablet) sendSnapshot(s group.Snapshot) {
	if !t.cfg.Snapshots.Send(t.id, s, func(err error) {
		t.self.send(&snapshotSent{to: s.To, err: err})
	}) {
		t.group.SnapshotEnded(s.To, false)
	}
}

// snapshotSent reports the end of a snapshot's sending.
type snapshotSent struct {
	to  uint64
	err error
}

// onSnapshotSent tells the group that the sending has ended. It finds out what the
// replica has, whether or not there was an error.
func (t *Tablet) onSnapshotSent(m *snapshotSent) {
	if m.err != nil {
		t.cfg.Logger.Warn("a snapshot was not installed; the replica is asked what it lacks",
			"tablet", t.id, "replica", m.to, "error", m.err)
	}
	t.group.SnapshotEnded(m.to, true)
	t.ready()
}

// append sends what is to be written to the log actor. Its responses, which acknowledge
// it to Raft, are stepped when it is synced.
func (t *Tablet) append(a *group.Append) {
	m := &appended{responses: a.Done}
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

// onAppended tells the group that a write to the log is synced.
func (t *Tablet) onAppended(m *appended) {
	if m.err == nil {
		m.err = t.group.Appended(m.responses)
	}
	if m.err != nil {
		t.fail(m.err)
		return
	}
	t.ready()
	t.overlap()
}

// overlap goes on with the next batch as soon as an entry is committed, without waiting
// until it is applied.
func (t *Tablet) overlap() {
	if t.failed == nil && t.leading {
		t.takeHeld()
		t.ready()
	}
}
