package group

// This file has the Group itself. It owns the RawNode, and raft's term, leader and log
// positions as of the last Ready. The replica's actor calls it in its turns, does what a
// Ready says, and reports the ends of the writes by Appended and Applied. Any number of
// appends and applies may be under way in between.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// ElectionTicks is raft's minimum election timeout, in ticks: each timeout is drawn at random, and
// less than twice as long. A leader sends heartbeats every heartbeatTicks.
const (
	ElectionTicks  = 10
	heartbeatTicks = 2
)

// Limits of the bytes of entries in a message, and of the messages in flight to one replica. An
// entry that is longer than maxMessageBytes is sent alone.
const (
	maxMessageBytes     = 1 << 20
	maxInflightMessages = 256
)

// Storage is the replica's log. Its calls read what earlier Appends have made durable.
type Storage interface {
	raft.Storage
	// Checkpoint is the index up to which the replica's state is durable.
	Checkpoint() (uint64, error)
}

// Host is the interface of a group to its node.
type Host interface {
	// Down reports whether the node is believed dead.
	Down(node uint64) bool
	// Full reports whether writes already wait for disk space or another resource for files.
	Full() bool
	// NoRoom returns the error because of which nothing may be accepted that would have to be
	// written; nil if there is none.
	NoRoom() error
}

// Config configures a Group.
type Config struct {
	Tablet, Replica, Node uint64
	Descriptor            *pb.TabletDescriptor
	ConfState             *raftpb.ConfState
	Applied               uint64 // the last entry in the state that the replica begins with
	Stale                 bool   // see Group.Stale
	Storage               Storage
	Host                  Host
	MaxUncommitted        uint64 // bytes of entries proposed and not yet applied
	MaxInflight           uint64 // bytes of entries on their way to one replica
	MaxApply              uint64 // bytes of entries being applied: in Readys and not yet Applied
	Leases                Leases // nil: none
	Logger                *slog.Logger
}

// Group is the Raft of one replica. All fields belong to the caller's goroutine.
type Group struct {
	cfg  Config
	raft *raft.RawNode
	members
	retention retention

	term    uint64 // raft's current term
	leader  uint64 // the replica that is believed to lead; else 0
	elected bool   // this replica leads, according to raft
	asked   uint64 // ReadIndexes passed to raft in this term

	hard                 *raftpb.HardState // raft's newest; the log may lack its commit index
	last                 uint64            // last entry handed out to be appended
	visible, visibleTerm uint64            // index and term of the last entry with readable effects
	// replayed is the last of the entries in the log when the group was made that no leader has
	// replaced since.
	replayed uint64

	clock             uint64 // ticks so far
	leaderLost        uint64 // clock when the leader became unknown
	quiesced          bool   // not ticked
	idleTicks         int    // ticks since this leader had something to do
	electionBoost     int    // remaining ticks at which this replica campaigns if it knows no leader
	transferTicks     int    // 1 plus the ticks since the last Transfer; 0: it has ended
	dropHeartbeatResp bool

	stale      bool            // see Stale
	stalePeers map[uint64]bool // other replicas of the group that have reported themselves stale

	lease   *Lease  // lease of this leader's term; nil for a follower and without Leases
	promise promise // of this follower
	silent  uint64  // ticks since this follower's leader was heard of

	heard    map[uint64]lastContact // by other replica: the last contact with it
	messages []*wire.RaftMessage    // to be sent with the next Ready
	reads    []Read                 // buffer of Ready.Reads
	leased   []Read                 // answered under the lease, for the next Ready
	err      error                  // ends the replica
}

// New creates the group of a replica from its storage.
func New(cfg Config) (*Group, error) {
	g := &Group{
		cfg: cfg, members: newMembers(cfg.Replica, cfg.Descriptor, cfg.ConfState),
		heard: map[uint64]lastContact{}, stalePeers: map[uint64]bool{}, stale: cfg.Stale,
		quiesced: true, visible: cfg.Applied, promise: newPromise(cfg.Leases, cfg.Tablet),
	}
	first, err := cfg.Storage.FirstIndex()
	if err != nil {
		return nil, err
	}
	g.retention.truncated = first - 1
	if g.last, err = cfg.Storage.LastIndex(); err != nil {
		return nil, err
	}
	g.replayed = g.last
	if g.hard, _, err = cfg.Storage.InitialState(); err != nil {
		return nil, err
	}
	g.term = g.hard.GetTerm()
	g.raft, err = raft.NewRawNode(&raft.Config{
		ID: cfg.Replica, ElectionTick: ElectionTicks, HeartbeatTick: heartbeatTicks,
		Storage: cfg.Storage, Applied: cfg.Applied,
		AsyncStorageWrites: true, PreVote: true, CheckQuorum: true, DisableProposalForwarding: true,
		StepDownOnRemoval: true,
		MaxSizePerMsg:     maxMessageBytes, MaxCommittedSizePerReady: cfg.MaxApply,
		MaxInflightMsgs: maxInflightMessages, MaxInflightBytes: cfg.MaxInflight,
		MaxUncommittedEntriesSize: cfg.MaxUncommitted,
		Logger:                    raftLogger{cfg.Logger.With("tablet", cfg.Tablet)},
	})
	return g, err
}

// Ready contains the work to do before the group is asked for the next Ready. Term, leadership and
// role may have changed with it: a replica that has lost leadership steps down before it processes
// the rest.
type Ready struct {
	LeaderChanged bool   // another replica leads than before, perhaps this one, or none is known to
	Reads         []Read // valid until the next Ready
	Append        *Append
	Apply         []*raftpb.Entry   // committed
	ApplyDone     []*raftpb.Message // to pass to Applied, with the last of Apply
	Messages      []*wire.RaftMessage
	Snapshots     []Snapshot
}

// Append is one atomic write to the log, in the order of Readys, or nothing but Done. Call Appended
// when it and all earlier ones are durable.
type Append struct {
	Entries   []*raftpb.Entry
	HardState *raftpb.HardState // the newest, even if unchanged; nil: nothing is written
	Truncate  uint64            // removes the entries up to this index; 0: none
	Done      []*raftpb.Message // to pass to Appended
}

// Read is the answer to a ReadIndex: a read that includes everything up to Index includes
// everything acknowledged before the request.
type Read struct{ ID, Index uint64 }

// HasMessages reports whether there are messages that no Ready has brought yet.
func (g *Group) HasMessages() bool { return len(g.messages) > 0 }

// Ready returns the work to do; ok is false if there is none. After an error the replica must stop.
func (g *Group) Ready() (out Ready, ok bool, err error) {
	if ok = g.raft.HasReady(); ok {
		rd := g.raft.Ready()
		out.LeaderChanged = g.observe(&rd)
		g.reads = g.reads[:0]
		for _, r := range rd.ReadStates {
			g.reads = append(g.reads,
				Read{ID: binary.BigEndian.Uint64(r.RequestCtx), Index: r.Index})
		}
		out.Reads = g.reads
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				out.Append = g.append(m)
			case raft.LocalApplyThread:
				out.Apply, out.ApplyDone = m.Entries, m.Responses
			default:
				if s := g.transmit(m); s.To != 0 {
					out.Snapshots = append(out.Snapshots, s)
				}
			}
		}
	}
	if len(g.leased) > 0 {
		out.Reads, ok = append(out.Reads, g.leased...), true
		g.leased = g.leased[:0]
	}
	g.dropHeartbeatResp = false
	out.Messages, g.messages = g.messages, nil
	return out, ok || len(out.Messages) > 0, g.err
}

// observe takes note of term, leader and role, and reports whether the leader has changed.
func (g *Group) observe(rd *raft.Ready) (leaderChanged bool) {
	if rd.HardState != nil && rd.HardState.GetTerm() != g.term {
		g.term = rd.HardState.GetTerm()
		g.asked = 0
		g.endLease()
	}
	led := g.elected
	if rd.SoftState != nil {
		g.elected = rd.SoftState.RaftState == raft.StateLeader
	}
	switch {
	case !g.elected:
		g.endLease()
	case g.lease == nil:
		g.beginLease()
	}
	if rd.SoftState == nil {
		return false
	}
	if led && !g.elected && g.solo {
		g.unquiesce() // nobody else will ask for votes
	}
	if rd.SoftState.Lead == g.leader {
		return false
	}
	if g.leader = rd.SoftState.Lead; g.leader == 0 {
		g.leaderLost = g.clock
		return true
	}
	g.electionBoost = 0
	if !g.elected {
		g.transferTicks = 0 // raft has not abandoned the transfer: another replica leads
	}
	return true
}

// append converts a MsgStorageAppend to an Append, and adds a due truncation. It returns nil for a
// commit index that advances alone, which waits for the next Append with something to write. It must
// be written then, although raft does not repeat it (package comment). An Append that only
// acknowledges earlier ones has nothing to write.
func (g *Group) append(m *raftpb.Message) *Append {
	voted := g.noteHardState(m)
	if len(m.Entries) == 0 && len(m.Responses) == 0 && !voted {
		return nil
	}
	a := &Append{Entries: m.Entries, Done: m.Responses}
	if len(m.Entries) > 0 {
		// The entries that these replace were never committed, so none of their effects is visible.
		g.replayed = min(g.replayed, m.Entries[0].GetIndex()-1)
	}
	for _, e := range m.Entries {
		g.retention.sizes.append(e.GetIndex(), len(e.Data))
		g.last = e.GetIndex()
	}
	var err error
	if a.Truncate, err = g.retention.truncateTo(g.visible, g.cfg.Storage.Checkpoint, g.served); err != nil {
		g.err = err
	}
	if len(m.Entries) > 0 || voted || a.Truncate > 0 {
		a.HardState = g.hard
	}
	return a
}

// noteHardState takes note of the HardState in a MsgStorageAppend, if there is one. It
// reports whether it brings more than a commit index.
func (g *Group) noteHardState(m *raftpb.Message) (voted bool) {
	if m.Term == nil && m.Vote == nil && m.Commit == nil {
		return false
	}
	voted = m.GetTerm() != g.hard.GetTerm() || m.GetVote() != g.hard.GetVote()
	term, vote, commit := m.GetTerm(), m.GetVote(), m.GetCommit()
	g.hard = &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
	return voted
}

// Appended reports that an Append is durable. Like Applied it is called in the order of the Readys;
// after an error the replica must stop.
func (g *Group) Appended(done []*raftpb.Message) error { return g.respond(done) }

// Applied reports to the group that the effects of the entry, and of all earlier ones, are
// readable.
func (g *Group) Applied(index, term uint64, done []*raftpb.Message) error {
	g.visible, g.visibleTerm = index, term
	return g.respond(done)
}

// respond passes to raft the responses of its storage that are addressed to this replica, and sends
// the others: the state on which they depend is durable now.
func (g *Group) respond(responses []*raftpb.Message) error {
	for _, r := range responses {
		if r.GetTo() != g.cfg.Replica {
			g.transmit(r)
			continue
		}
		// A replica that is not of its group any more acknowledges nothing, not even to itself.
		if err := g.raft.Step(r); err != nil && !errors.Is(err, raft.ErrStepPeerNotFound) {
			return err
		}
	}
	return nil
}

// Propose hands entries to raft, which sends them in one message to each follower. An error means that
// raft took none.
func (g *Group) Propose(data ...[]byte) error {
	m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &g.cfg.Replica}
	for _, d := range data {
		m.Entries = append(m.Entries, &raftpb.Entry{Data: d})
	}
	return g.raft.Step(m)
}

// ReadIndex asks for the index that a read must see. The answer comes as a Read with the
// id, which must not have been used before; if leadership is lost it never comes. leased reports that
// it comes with the next Ready, because of a lease.
func (g *Group) ReadIndex(id uint64) (leased bool) {
	if index, ok := g.readLease(); ok {
		g.leased = append(g.leased, Read{ID: id, Index: index})
		return true
	}
	g.asked++
	g.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, id))
	if !g.single && !g.quiesced { // a quiesced leader stays so: its followers answer without waking
		g.Wake()
	}
	return false
}

// Term returns the current Raft term.
func (g *Group) Term() uint64 { return g.term }

// Elected reports whether this replica leads, as raft has it.
func (g *Group) Elected() bool { return g.elected }

// MayLead reports whether this replica may serve as the leader: it is elected, and all
// that earlier leaders have acknowledged is visible.
func (g *Group) MayLead() bool { return g.elected && g.CaughtUp(g.visible) }

// CaughtUp reports whether everything up to the index is visible, and an entry of the
// term with it.
func (g *Group) CaughtUp(index uint64) bool {
	return index <= g.visible && g.visibleTerm == g.term
}

// LogBounds returns the indices of the first and the last entry of the durable log.
func (g *Group) LogBounds() (first, last uint64) {
	first, _ = g.cfg.Storage.FirstIndex()
	last, _ = g.cfg.Storage.LastIndex()
	return first, last
}

// Visible returns the index of the last entry whose effects can be read.
func (g *Group) Visible() uint64 { return g.visible }

// Replayed returns the index of the last entry that may be in the state already, since it was in
// the log when the group was made: until it is visible, the state may be ahead of Visible.
func (g *Group) Replayed() uint64 { return g.replayed }

// LeaderKnown reports whether any replica is known to lead.
func (g *Group) LeaderKnown() bool { return g.leader != 0 }

// LeaderNode returns the node of the replica that leads, as far as is known; else 0.
func (g *Group) LeaderNode() uint64 { return g.nodes[g.leader] }

// raftLogger passes raft's log lines to slog: information at level debug, and no debug lines. A
// panic of raft means a broken invariant.
type raftLogger struct{ l *slog.Logger }

func (r raftLogger) Debug(v ...any)              {}
func (r raftLogger) Debugf(f string, v ...any)   {}
func (r raftLogger) Info(v ...any)               { r.l.Debug(fmt.Sprint(v...)) }
func (r raftLogger) Infof(f string, v ...any)    { r.l.Debug(fmt.Sprintf(f, v...)) }
func (r raftLogger) Warning(v ...any)            { r.l.Warn(fmt.Sprint(v...)) }
func (r raftLogger) Warningf(f string, v ...any) { r.l.Warn(fmt.Sprintf(f, v...)) }
func (r raftLogger) Error(v ...any)              { r.l.Error(fmt.Sprint(v...)) }
func (r raftLogger) Errorf(f string, v ...any)   { r.l.Error(fmt.Sprintf(f, v...)) }
func (r raftLogger) Fatal(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Fatalf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
func (r raftLogger) Panic(v ...any)              { panic(fmt.Sprint(v...)) }
func (r raftLogger) Panicf(f string, v ...any)   { panic(fmt.Sprintf(f, v...)) }
