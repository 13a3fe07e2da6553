package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// This file has stale replicas: those whose log lacks what they have acknowledged, because
// their directory was restored from an older copy, or their disk has lost a synced write.
// Such a replica has forgotten entries that others count on, and perhaps votes. It must
// neither vote nor acknowledge anything again, and Raft would never bring it up to date: a
// leader's Match does not decrease. So it stops taking part, tells the others, and placement
// replaces it by a replica with another id. A stale replica stays stale.
//
// With each heartbeat the leader sends the follower's Match in its term, and the follower
// compares that with its log. No late or duplicate message misleads it: in one term its log
// never becomes shorter than what it has acknowledged.

// Stale reports whether this replica's log lacks entries that it has acknowledged. The caller makes
// that durable, and sets Config.Stale when it creates the Group again.
func (g *Group) Stale() bool { return g.stale }

// rejectStale reports whether this replica is stale, and if so informs the sender.
func (g *Group) rejectStale(in *Incoming) bool {
	if !g.stale && g.forgot(in) {
		g.stale = true
		g.Wake()
		g.wakeOthers()
	}
	if g.stale {
		out := g.envelope(in.FromReplica)
		out.ToNode = in.FromNode
		g.messages = append(g.messages, out)
	}
	return g.stale
}

// forgot reports whether a leader's heartbeat shows that this replica has acknowledged more
// than its log has. A replica that waits for its first snapshot knows no peers; if it has
// acknowledged anything, it existed before.
func (g *Group) forgot(in *Incoming) bool {
	member := g.nodes[in.FromReplica] != 0 || len(g.nodes) == 0
	return in.Raft.GetType() == raftpb.MsgHeartbeat && in.Raft.GetTerm() >= g.term &&
		!g.elected && member && in.Match > g.last
}

// match returns the last entry that the replica has acknowledged to this leader.
func (g *Group) match(replica uint64) (index uint64) {
	if g.elected {
		g.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			if id == replica {
				index = p.Match
			}
		})
	}
	return index
}
