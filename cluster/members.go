package cluster

import "github.com/percolator-go/percolator/internal/mvcc"

// Member is a node as gossip knows it: a hint, never a ground for a decision that must be right (design section 9).
type Member struct {
	NodeID, Incarnation        uint64
	Listen, Peer, Gossip, HTTP string // host:port
	Zone                       string // the label "zone"
	Draining                   bool
	// LeadsMeta is the term in which the node says it leads meta; 0: it does not.
	LeadsMeta uint64
	Load      MemberLoad
}

// MemberLoad is what a node says of itself, a few times a minute.
type MemberLoad struct {
	Replicas, Leaders uint32
	SizeBytes         uint64 // of its replicas
	Load              uint64 // operations per second that it leads
	DiskFree          uint64 // bytes
}

// Members is who is in the cluster, this node included. All methods may be used concurrently.
type Members interface {
	// Alive are the members that gossip believes to be alive, by node id.
	Alive() []Member
	// Member is one of them; false if it is not believed to be alive.
	Member(node uint64) (Member, bool)
	// Dead reports positive knowledge that the incarnation has ended: it was seen to die, or a later one was seen. Never
	// knowing it is not knowing it dead (design section 4, invariant 7).
	Dead(w mvcc.Worker) bool
	// Watch calls fn after a member has come, gone or changed, until cancel. fn must not block.
	Watch(fn func(MemberEvent)) (cancel func())
}

// MemberEvent is a change of one member.
type MemberEvent struct {
	Member Member
	Alive  bool // false: it has died or left
}

// Alone is the membership of a node that has no gossip: itself.
type Alone struct{ Self Member }

var _ Members = Alone{}

// Alive implements Members.
func (a Alone) Alive() []Member { return []Member{a.Self} }

// Member implements Members.
func (a Alone) Member(node uint64) (Member, bool) { return a.Self, node == a.Self.NodeID }

// Dead implements Members: its own earlier incarnations have ended, for the store is held by one process at a time.
func (a Alone) Dead(w mvcc.Worker) bool {
	return w.Node == a.Self.NodeID && w.Node != 0 && w.Incarnation < a.Self.Incarnation
}

// Watch implements Members: nothing ever changes.
func (Alone) Watch(func(MemberEvent)) (cancel func()) { return func() {} }
