package cluster

import (
	"errors"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// This file holds what gossip tells the other rooms (Members), and the stand-in for a
// node that has no gossip (Alone). Both are read on any goroutine. Watchers are called on
// a goroutine of the implementation's, and what they hear may be out of date already.

// Member is a node as gossip knows it: a hint, never a ground for a decision that must be
// right (design section 9).
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
	// Dead reports positive knowledge that the incarnation has ended: it was seen to die,
	// or a later one was seen. Never knowing it is not knowing it dead (design section 4,
	// invariant 7).
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
type Alone struct {
	mu   sync.Mutex
	self Member
}

var _ Members = (*Alone)(nil)

// NewAlone returns the membership of that node.
func NewAlone(self Member) *Alone { return &Alone{self: self} }

// Set changes what this node says of itself, as gossip's does: nobody else hears of it,
// but who asks this node.
func (a *Alone) Set(change func(m *Member)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.self)
}

func (a *Alone) now() Member {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self
}

// Alive implements Members.
func (a *Alone) Alive() []Member { return []Member{a.now()} }

// Member implements Members.
func (a *Alone) Member(node uint64) (Member, bool) {
	self := a.now()
	return self, node == self.NodeID
}

// Dead implements Members: its own earlier incarnations have ended, for the store is held
// by one process at a time.
func (a *Alone) Dead(w mvcc.Worker) bool {
	self := a.now()
	return w.Node == self.NodeID && w.Node != 0 && w.Incarnation < self.Incarnation
}

// Watch implements Members: nobody comes or goes, and what the node says of itself it knows.
func (*Alone) Watch(func(MemberEvent)) (cancel func()) { return func() {} }

// Why a node is not registered in meta: its process must end. Each comes with a
// txn.ServerError that names the node.
var (
	// ErrStaleIncarnation: a later incarnation of the node has registered.
	ErrStaleIncarnation = errors.New("cluster: a later incarnation of the node has registered")
	// ErrDuplicateNode: another process has registered with the same node id and
	// incarnation: a copied directory.
	ErrDuplicateNode = errors.New("cluster: another process has this node's identity")
	// ErrForgotten: the node was forgotten; its directory is of no use any more.
	ErrForgotten = errors.New("cluster: the node was forgotten")
)
