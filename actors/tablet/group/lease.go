package group

import (
	"maps"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// This file has the lease of a leader: the time during which no other replica can be elected, so that
// the leader answers a ReadIndex without asking the others (docs/adr/0060 has the proof). It rests on
// promises between nodes (Leases). A follower sends with each acknowledgment the epoch under which
// its node supports the leader's (fortify); the leader counts the promises of that epoch. As long as
// its node's promise holds, the follower takes part in no election (promise.go), except in that of a
// transfer, before which the leader gives its lease up for the rest of its term.
//
// A Lease is the only part of a Group that other goroutines may use.

// Leases are the promises between this node and the others. *liveness.Node implements it. Its
// methods do not block.
type Leases interface {
	// Now returns the time since a fixed moment, on this node's clock.
	Now() time.Duration
	// SupportUntil returns the time on the clock of Now up to which the other node has promised its
	// support under the epoch, or 0. It makes this node ask the other one for support.
	SupportUntil(node, epoch uint64) time.Duration
	// Supported returns the epoch under which this node supports the other one now, or 0.
	Supported(node uint64) (epoch uint64)
	// Withdraw withdraws the support under the epoch for good, unless a promise still holds, and
	// reports whether it is withdrawn.
	Withdraw(node, epoch uint64) bool
	// Refuse ends the promises under the epoch; the last one still holds.
	Refuse(node, epoch uint64)
	// Waiting reports whether forgotten promises of an earlier process may still hold.
	Waiting() bool
	// Fortify remembers, while this process runs, the node of the leader that the tablet's replica
	// here acknowledged last, and the epoch sent with that acknowledgment. Fortified returns both;
	// an epoch of 0 means none.
	Fortify(tablet, node, epoch uint64)
	Fortified(tablet uint64) (node, epoch uint64)
}

// support identifies the promises of one node to another. The zero value is none.
type support struct{ node, epoch uint64 }

// Lease is the lease of a leader in one term. It is safe for concurrent use.
type Lease struct {
	leases Leases
	self   uint64
	gaveUp atomic.Bool
	voters atomic.Pointer[leaseVoters]
}

// leaseVoters is an immutable set of voters, and the promises that count for them.
type leaseVoters struct {
	sets     [2][]uint64        // the configuration's voters, and the outgoing ones
	promises map[uint64]support // by replica: its node and its epoch
}

// Held reports whether it is certain that, at some moment during the call, no other replica had
// been elected in a later term.
func (l *Lease) Held() bool {
	v := l.voters.Load()
	if v == nil || l.gaveUp.Load() {
		return false
	}
	now, held := l.leases.Now(), true
	for _, set := range v.sets {
		promised := 0
		for _, id := range set {
			p := v.promises[id]
			if id == l.self || p.node != 0 && now < l.leases.SupportUntil(p.node, p.epoch) {
				promised++
			}
		}
		// Do not stop at the first set without a majority: SupportUntil also has the nodes asked
		// again.
		held = held && (len(set) == 0 || promised > len(set)/2)
	}
	return held
}

// reconfigure sets the lease's voters to those of the configuration. It keeps the promises of
// replicas that are on the same nodes as before.
func (l *Lease) reconfigure(m *members) {
	if l != nil {
		l.count(m, l.voters.Load().promises)
	}
}

// promised notes the epoch in an acknowledgment of the replica.
func (l *Lease) promised(m *members, replica uint64, p support) {
	if l == nil || m.nodes[replica] != p.node {
		return
	}
	if v := l.voters.Load(); v.promises[replica] != p {
		promises := maps.Clone(v.promises)
		promises[replica] = p
		l.count(m, promises)
	}
}

// count sets the voters to those of the configuration, with the promises.
func (l *Lease) count(m *members, promises map[uint64]support) {
	v := &leaseVoters{sets: [2][]uint64{m.conf.GetVoters(), m.conf.GetVotersOutgoing()}}
	v.promises = make(map[uint64]support, len(m.nodes))
	for id, node := range m.nodes {
		v.promises[id] = support{node: node} // Held asks it for support: its epoch is unknown
		if p := promises[id]; p.node == node {
			v.promises[id] = p
		}
	}
	l.voters.Store(v)
}

// giveUp ends the lease for the rest of the term.
func (l *Lease) giveUp() {
	if l != nil {
		l.gaveUp.Store(true)
	}
}

// Lease returns the lease of this leader, or nil.
func (g *Group) Lease() *Lease { return g.lease }

// beginLease begins the lease of a term, without any promise yet. All leases of earlier terms are
// over, so this replica is bound by none any more.
func (g *Group) beginLease() {
	if g.cfg.Leases == nil {
		return
	}
	g.lease = &Lease{leases: g.cfg.Leases, self: g.cfg.Replica}
	g.promise.set(support{})
	g.lease.count(&g.members, nil)
}

// endLease ends the lease of a replica that has lost leadership, or whose term has changed.
func (g *Group) endLease() {
	g.lease.giveUp()
	g.lease = nil
}

// fortifiedBy notes the epoch in a follower's acknowledgment of this term.
func (g *Group) fortifiedBy(in *Incoming) {
	if in.SupportEpoch != 0 && in.Raft.GetTerm() == g.term && acknowledges(in.Raft) {
		g.lease.promised(&g.members, in.FromReplica, support{in.FromNode, in.SupportEpoch})
	}
}

// acknowledges reports whether the message answers a leader's MsgApp or MsgHeartbeat.
func acknowledges(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgAppResp || m.GetType() == raftpb.MsgHeartbeatResp
}

// fortify returns the epoch to send with a message; 0 means none. An acknowledgment may have waited
// for its entries to become durable: it counts only if this replica still follows that leader in
// that term. Leases of other leaders are over then, since their terms are earlier ones.
func (g *Group) fortify(m *raftpb.Message) (epoch uint64) {
	if g.cfg.Leases == nil || !acknowledges(m) {
		return 0
	}
	now := g.raft.BasicStatus()
	node := g.nodes[m.GetTo()]
	if now.GetTerm() != m.GetTerm() || now.Lead != m.GetTo() || node == 0 {
		return 0
	}
	return g.promise.fortify(node)
}

// hearLeader notes a message that restarted raft's election timeout.
func (g *Group) hearLeader(in *Incoming) {
	if t := in.Raft.GetType(); t != raftpb.MsgApp && t != raftpb.MsgHeartbeat {
		return
	}
	if now := g.raft.BasicStatus(); now.Lead == in.FromReplica && now.GetTerm() == in.Raft.GetTerm() {
		g.silent = 0
	}
}

// readLease returns the index that a read must see, if this leader holds its lease. It is not used
// with a single voter, for which raft asks no others. The lease is looked up before the index, so
// the index covers whatever was acknowledged by then, also if the process was suspended in between.
func (g *Group) readLease() (index uint64, ok bool) {
	if g.lease == nil || g.single || !g.MayLead() || !g.lease.Held() {
		return 0, false
	}
	now := g.raft.BasicStatus()
	if now.RaftState != raft.StateLeader || now.GetTerm() != g.term {
		return 0, false
	}
	return now.GetCommit(), true
}
