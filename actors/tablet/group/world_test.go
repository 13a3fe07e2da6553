package group

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// world is some nodes, each with a replica of one or more tablets. It stands for a tablet's actor,
// the writers and the network of a Group: it holds the requests of Readys until a command of the
// transcript (transcript_test.go) executes them.
type world struct {
	out      strings.Builder
	replicas []*replica
	messages []*wire.RaftMessage // in flight
	cut      map[uint64]bool     // nodes without a network
	down     map[uint64]bool     // nodes believed dead
	full     map[uint64]bool     // nodes with full disks
	leases   map[uint64]Leases   // by node; none: no leases
	away     map[uint64]bool     // nodes that receive no snapshot now
}

// replica is one replica of a tablet. Its first fields survive a crash.
type replica struct {
	tablet, id, node uint64
	log              *memoryLog
	checkpoint       state
	stale            bool
	copied           *replica // at the time of the command copy

	w       *world
	group   *Group // nil: crashed or ended
	state   state
	appends []*Append
	applies []*raftpb.Entry
	done    map[uint64][]*raftpb.Message // by the last entry of an Apply
	change  *Change                      // under way
	asked   bool                         // its next entry is proposed
}

// state is a replica's applied state.
type state struct {
	index, term uint64
	descriptor  *pb.TabletDescriptor
	conf        *raftpb.ConfState
}

// memoryLog is a log without a disk. Its checkpoint and configuration are the replica's.
type memoryLog struct {
	*raft.MemoryStorage
	replica *replica
}

func (l *memoryLog) Checkpoint() (uint64, error) { return l.replica.checkpoint.index, nil }

func (l *memoryLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs, _, err := l.MemoryStorage.InitialState()
	if hs.GetCommit() < l.replica.checkpoint.index {
		hs = proto.CloneOf(hs)
		hs.Commit = proto.Uint64(l.replica.checkpoint.index)
	}
	return hs, l.replica.checkpoint.conf, err
}

// host is the node of a replica.
type host struct {
	w    *world
	node uint64
}

var errNoRoom = errors.New("no room")

func (h host) Down(node uint64) bool { return h.w.down[node] }
func (h host) Full() bool            { return h.w.full[h.node] }
func (h host) NoRoom() error {
	if h.Full() {
		return errNoRoom
	}
	return nil
}

// The log of a tablet begins behind this entry.
const (
	beginIndex = 10
	beginTerm  = 1
)

// add creates a replica whose log begins at the state.
func (w *world) add(tablet, id, node uint64, s state) *replica {
	r := &replica{w: w, tablet: tablet, id: id, node: node, checkpoint: s}
	r.log = &memoryLog{raft.NewMemoryStorage(), r}
	if s.index > 0 {
		must(r.log.ApplySnapshot(&raftpb.Snapshot{
			Metadata: &raftpb.SnapshotMetadata{Index: &s.index, Term: &s.term, ConfState: s.conf},
		}))
		must(r.log.SetHardState(&raftpb.HardState{
			Term: &s.term, Vote: new(uint64), Commit: &s.index,
		}))
	}
	w.replicas = append(w.replicas, r)
	slices.SortFunc(w.replicas, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.tablet, b.tablet), cmp.Compare(a.node, b.node))
	})
	r.start(false)
	return r
}

// start opens the replica at its checkpoint.
func (r *replica) start(boost bool) {
	r.state, r.appends, r.applies, r.done, r.change = r.checkpoint, nil, nil,
		map[uint64][]*raftpb.Message{}, nil
	var err error
	r.group, err = New(Config{
		Tablet: r.tablet, Replica: r.id, Node: r.node, Descriptor: r.state.descriptor,
		ConfState: r.state.conf,
		Applied:   r.state.index, Storage: r.log, Host: host{r.w, r.node}, Stale: r.stale,
		Leases: r.w.leases[r.node], MaxUncommitted: 1 << 20, MaxInflight: 1 << 20, MaxApply: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	})
	must(err)
	r.group.Start(boost)
}

// copy saves the replica's durable state.
func (r *replica) copy() {
	r.copied = &replica{checkpoint: r.checkpoint}
	r.copied.log = &memoryLog{raft.NewMemoryStorage(), r}
	first, err := r.log.FirstIndex()
	must(err)
	last, err := r.log.LastIndex()
	must(err)
	before := first - 1
	term, err := r.log.Term(before)
	must(err)
	must(r.copied.log.ApplySnapshot(&raftpb.Snapshot{
		Metadata: &raftpb.SnapshotMetadata{Index: &before, Term: &term, ConfState: r.checkpoint.conf},
	}))
	if last > before {
		entries, err := r.log.Entries(first, last+1, 1<<20)
		must(err)
		must(r.copied.log.Append(entries))
	}
	hard, _, err := r.log.InitialState()
	must(err)
	must(r.copied.log.SetHardState(proto.CloneOf(hard)))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

// stabilize executes everything possible on the nodes; on all if none are given.
func (w *world) stabilize(nodes []uint64) {
	among := func(node uint64) bool { return len(nodes) == 0 || slices.Contains(nodes, node) }
	for again := true; again; {
		again = false
		step := func(happens func(*replica) bool) {
			for _, r := range slices.Clone(w.replicas) {
				if r.group != nil && among(r.node) {
					again = happens(r) || again
				}
			}
		}
		step((*replica).ready)
		for _, m := range w.take(func(m *wire.RaftMessage) bool { return among(m.ToNode) }) {
			again = true
			w.deliver(m)
		}
		step((*replica).finishAppend)
		step((*replica).finishApply)
	}
}

// take removes messages from the wire.
func (w *world) take(which func(*wire.RaftMessage) bool) (taken []*wire.RaftMessage) {
	w.messages = slices.DeleteFunc(w.messages, func(m *wire.RaftMessage) bool {
		if which(m) {
			taken = append(taken, m)
			return true
		}
		return false
	})
	return taken
}

// deliver hands a message to its replica, which its node creates first if the message describes the
// tablet; one for a node that is cut off, or without such a replica, is lost.
func (w *world) deliver(m *wire.RaftMessage) {
	if w.cut[m.FromNode] != w.cut[m.ToNode] || w.cut[m.ToNode] {
		return
	}
	r := w.at(m.TabletId, m.ToNode)
	if r == nil && m.Tablet != nil && Replica(m.Tablet, m.ToReplica) != nil {
		w.printf("%d makes replica %d, which waits for a snapshot", m.ToNode, m.ToReplica)
		r = w.add(m.TabletId, m.ToReplica, m.ToNode, state{
			descriptor: &pb.TabletDescriptor{TabletId: m.TabletId},
			conf:       &raftpb.ConfState{AutoLeave: new(bool)},
		})
	}
	if r == nil || r.group == nil {
		return
	}
	if m.Quiesce {
		// a tablet calls it after every message; with this one it would drop the answers to others
		r.ready()
	}
	rested, stale := r.group.Quiesced(), r.group.Stale()
	if removedBy := r.group.Step(Decode(m)); removedBy != nil {
		r.end()
		return
	}
	if r.stale = r.group.Stale(); r.stale != stale {
		w.printf("%s is stale", r.name())
	}
	if r.group.Quiesced() != rested {
		w.printf("%s %s", r.name(), map[bool]string{true: "rests", false: "wakes"}[!rested])
	}
}

// at returns the tablet's replica on the node; nil if there is none.
func (w *world) at(tablet, node uint64) *replica {
	for _, r := range w.replicas {
		if r.tablet == tablet && r.node == node {
			return r
		}
	}
	return nil
}

// name returns the replica's name in transcripts.
func (r *replica) name() string {
	if r.tablet == firstTablet {
		return fmt.Sprint(r.node)
	}
	return fmt.Sprintf("%d (tablet %d)", r.node, r.tablet)
}

// end removes a replica that no longer belongs to its group.
func (r *replica) end() {
	r.w.printf("%s ends: it was removed", r.name())
	r.w.replicas = slices.DeleteFunc(r.w.replicas, func(o *replica) bool { return o == r })
	r.group = nil
}

// ready executes the group's Ready except the writes, which it holds.
func (r *replica) ready() bool {
	rd, ok, err := r.group.Ready()
	must(err)
	if !ok {
		return false
	}
	w := r.w
	w.printf("> %s", r.name())
	if rd.LeaderChanged {
		w.printf("  leader: %d in term %d", r.group.leader, r.group.Term())
	}
	for _, read := range rd.Reads {
		w.printf("  read %d sees all up to %d", read.ID, read.Index)
	}
	for _, m := range rd.Messages {
		w.printf("  %s", describe(m))
		w.messages = append(w.messages, m)
	}
	for _, s := range rd.Snapshots {
		w.printf("  snapshot for %d", s.To)
		r.sendSnapshot(s)
	}
	if a := rd.Append; a != nil {
		w.printf("  append%s%s", describeEntries(a.Entries), describeHard(a.HardState))
		r.appends = append(r.appends, a)
	}
	if len(rd.Apply) > 0 {
		w.printf("  apply %d to %d", rd.Apply[0].GetIndex(), rd.Apply[len(rd.Apply)-1].GetIndex())
		r.applies = append(r.applies, rd.Apply...)
		r.done[rd.Apply[len(rd.Apply)-1].GetIndex()] = rd.ApplyDone
	}
	return true
}

// sendSnapshot installs this replica's state on a lagging one, at once.
func (r *replica) sendSnapshot(s Snapshot) {
	to := r.w.at(r.tablet, s.Node)
	if to == nil || to.group == nil || r.w.cut[r.node] || r.w.cut[s.Node] || r.w.away[s.Node] {
		r.group.SnapshotEnded(s.To, false)
		return
	}
	if first, err := to.log.FirstIndex(); err == nil && r.state.index < first { // it has a later one
		r.group.SnapshotEnded(s.To, true)
		return
	}
	to.install(r.state)
	r.group.SnapshotEnded(s.To, true)
}

// install restarts the replica with a state. Its vote stays.
func (r *replica) install(s state) {
	hard, _, err := r.log.InitialState()
	must(err)
	r.checkpoint = s
	must(r.log.ApplySnapshot(&raftpb.Snapshot{
		Metadata: &raftpb.SnapshotMetadata{Index: &s.index, Term: &s.term, ConfState: s.conf},
	}))
	must(r.log.SetHardState(&raftpb.HardState{
		Term: proto.Uint64(hard.GetTerm()), Vote: proto.Uint64(hard.GetVote()), Commit: &s.index,
	}))
	r.start(false)
}

// finishAppend makes the pending append durable.
func (r *replica) finishAppend() bool {
	if len(r.appends) == 0 {
		return false
	}
	a := r.appends[0]
	r.appends = r.appends[1:]
	must(r.log.Append(a.Entries))
	if a.HardState != nil {
		must(r.log.SetHardState(a.HardState))
	}
	must(r.group.Appended(a.Done))
	return true
}

// finishApply applies committed entries and makes them visible.
func (r *replica) finishApply() bool {
	if len(r.applies) == 0 {
		return false
	}
	first := r.applies[0].GetIndex()
	var changed bool
	for _, e := range r.applies {
		r.state.index, r.state.term = e.GetIndex(), e.GetTerm()
		changed = r.apply(e) || changed
		done := r.done[r.state.index]
		delete(r.done, r.state.index)
		must(r.group.Applied(r.state.index, r.state.term, done))
	}
	r.applies = nil
	leads := ""
	if r.group.MayLead() {
		leads = ", leads"
	}
	r.w.printf("> %s has applied %d to %d%s", r.name(), first, r.state.index, leads)
	if !changed {
		return true
	}
	r.w.printf("  epoch %d: %s", r.state.descriptor.Epoch, describeConf(r.state.conf))
	if WasRemoved(r.state.descriptor, r.id) {
		r.end()
		return true
	}
	r.group.WakeForChange()
	if r.asked = false; r.change != nil && r.group.MayLead() {
		if r.change.Applied(r.state.descriptor) {
			r.change = nil
		} else {
			r.proposeChange()
		}
	}
	return true
}

// apply applies one entry and reports whether it changed the replicas.
func (r *replica) apply(e *raftpb.Entry) (changed bool) {
	if e.GetType() == raftpb.EntryConfChangeV2 {
		c, d := &raftpb.ConfChangeV2{}, &pb.TabletDescriptor{}
		must(proto.Unmarshal(e.Data, c))
		must(proto.Unmarshal(c.Context, d))
		r.state.descriptor = d
		r.state.conf = r.group.ApplyConfChange(c, d)
		return true
	}
	var tablet uint64
	if n, _ := fmt.Sscanf(string(e.Data), "split %d", &tablet); n == 0 {
		return false
	}
	left, right := proto.CloneOf(r.state.descriptor), proto.CloneOf(r.state.descriptor)
	left.Epoch++
	right.Epoch, right.TabletId = left.Epoch, tablet
	r.state.descriptor = left
	r.group.Reconfigure(left)
	begin := state{index: beginIndex, term: beginTerm, descriptor: right, conf: r.state.conf}
	child := r.w.at(tablet, r.node)
	if child == nil {
		child = r.w.add(tablet, r.id, r.node, begin)
	} else if child.checkpoint.index == 0 { // it waits for a snapshot that it no longer needs
		child.install(begin)
	}
	if r.group.Elected() {
		child.start(true)
	}
	return false
}

// proposeChange proposes the next entry of the change under way.
func (r *replica) proposeChange() {
	next, err := r.group.Next(r.change)
	r.asked = err == nil && next != nil
	switch {
	case err != nil:
		r.w.printf("%v", err)
		r.change = nil
	case next == nil:
		r.w.printf("%s: the change waits", r.name())
	default:
		data, err := proto.Marshal(next)
		must(err)
		if err := r.group.ProposeChange(next, data); err != nil {
			r.w.printf("%v", err)
			r.change = nil
		}
	}
}

func describe(m *wire.RaftMessage) string {
	in := Decode(m)
	if in.Raft == nil {
		what := "are you awake?"
		if m.Stale {
			what = "I am stale"
		}
		if m.Tablet != nil {
			what = fmt.Sprintf("you were removed before epoch %d", m.Tablet.Epoch)
		}
		return fmt.Sprintf("%d->%d %s", m.FromReplica, m.ToReplica, what)
	}
	in.Raft.Context = nil
	text := raft.DescribeMessage(in.Raft, nil)
	if m.Quiesce {
		text += " and rest"
	}
	return text
}

func describeEntries(entries []*raftpb.Entry) (text string) {
	for _, e := range entries {
		text += " [" + raft.DescribeEntry(e, nil) + "]"
	}
	return text
}

func describeHard(hs *raftpb.HardState) string {
	if hs == nil {
		return ""
	}
	return " " + raft.DescribeHardState(hs)
}

func describeConf(c *raftpb.ConfState) string {
	text := fmt.Sprintf("voters %v", c.Voters)
	if len(c.VotersOutgoing) > 0 {
		text += fmt.Sprintf(" and %v", c.VotersOutgoing)
	}
	if n := len(c.Learners) + len(c.LearnersNext); n > 0 {
		text += fmt.Sprintf(", learners %v", append(slices.Clone(c.Learners), c.LearnersNext...))
	}
	return text
}
