package cluster

import (
	"errors"
	"sync"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/version"
)

// This file declares what gossip tells other packages (Members), and the implementation for
// a node without gossip (Alone). Both are read on any goroutine. Watchers are called on a
// goroutine of the implementation, and what they are told may be out of date already.

// Member is a node as gossip knows it. It is a hint: no decision that must be right may
// depend on it (design section 9).
type Member struct {
	NodeID, Incarnation        uint64
	Listen, Peer, Gossip, HTTP string // host:port
	Zone                       string // the label "zone"
	Draining                   bool
	Versions                   version.Range // the versions that its build supports
	// LeadsMeta is the term in which the node reports to lead meta, else 0.
	LeadsMeta uint64
	Load      MemberLoad
}

// MemberLoad is the load of a node, which the node publishes every 5 s, and about a second after a
// change of its replicas or leaderships.
type MemberLoad struct {
	Replicas, Leaders uint32
	SizeBytes         uint64 // bytes of its replicas
	Load              uint64 // operations per second on the tablets that it leads
	DiskFree          uint64 // bytes
}

// Members are the nodes of the cluster, this node included. Its methods may be called
// concurrently.
type Members interface {
	// Alive returns the members that are believed to be alive, by node id.
	Alive() []Member
	// Member returns the node's member, and false if the node is not believed to be alive.
	Member(node uint64) (Member, bool)
	// Dead reports whether the incarnation is known to have ended: gossip reported that it died or
	// left, or a later one exists. A node that was never a member is not known to be dead (design
	// section 4, "Liveness").
	Dead(w mvcc.Worker) bool
	// Watch calls fn after a member has come, gone or changed, until cancel is called; calls for
	// earlier changes may still follow cancel. fn must not block.
	Watch(fn func(MemberEvent)) (cancel func())
}

// MemberEvent is a change of one member.
type MemberEvent struct {
	Member Member
	Alive  bool // false: it has died or left
}

// Alone is the Members of a node without gossip: only the node itself.
type Alone struct {
	mu   sync.Mutex
	self Member
}

var _ Members = (*Alone)(nil)

// NewAlone returns the Members of a node that is alone.
func NewAlone(self Member) *Alone { return &Alone{self: self} }

// Set changes this node's own entry. Unlike Gossip.Set it lets change alter any field.
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

// Dead implements Members. The node's own earlier incarnations have ended, because one
// process at a time holds the store.
func (a *Alone) Dead(w mvcc.Worker) bool {
	self := a.now()
	return w.Node == self.NodeID && w.Node != 0 && w.Incarnation < self.Incarnation
}

// Watch implements Members. There are no events.
func (*Alone) Watch(func(MemberEvent)) (cancel func()) { return func() {} }

// Reasons why meta does not register a node, whose process must then end. Each comes with a text
// that names the node.
var (
	// ErrStaleIncarnation reports that a later incarnation of the node has registered.
	ErrStaleIncarnation = errors.New("cluster: a later incarnation of the node has registered")
	// ErrDuplicateNode reports that another process has registered with the same node id and
	// incarnation, or is alive at another address with the same id, because a directory was copied.
	ErrDuplicateNode = errors.New("cluster: another process has this node's identity")
	// ErrForgotten reports that the node was forgotten, and its directory cannot be used any more.
	ErrForgotten = errors.New("cluster: the node was forgotten")
)
