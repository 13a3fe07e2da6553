package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Why a member is not let in.
var (
	errOtherCluster = errors.New("gossip: it belongs to another cluster")
	errStale        = errors.New("gossip: a later incarnation of the node is known")
	errFull         = errors.New("gossip: too many members")
	errName         = errors.New("gossip: its name is not that of the incarnation it says it is")
)

// delegate hands memberlist what this node says of itself. Nothing else travels with it.
type delegate struct{ g *Gossip }

// NodeMeta is called when the node joins and after Set; it may block. The bytes are memberlist's.
func (d delegate) NodeMeta(limit int) []byte {
	d.g.mu.Lock()
	self := d.g.self
	d.g.mu.Unlock()
	b, err := encodeMeta(d.g.hash, self)
	if err != nil || len(b) > limit { // Open has made sure that it fits
		d.g.cfg.Logger.Error("gossip: this node's metadata does not fit", "bytes", len(b), "error",
			err)
		return nil
	}
	return b
}

// NotifyMsg drops a user message: there are none.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts has none.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState has none.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState drops what there should not be.
func (delegate) MergeRemoteState([]byte, bool) {}

// events copies into the table. memberlist calls it under its lock: nothing here blocks
// or calls back.
type events struct{ g *Gossip }

// NotifyJoin is called when a member is new, or alive again.
func (e events) NotifyJoin(n *memberlist.Node) { e.NotifyUpdate(n) }

// NotifyUpdate is called when a member's metadata has changed.
func (e events) NotifyUpdate(n *memberlist.Node) {
	_, m, err := decodeMeta(n.Meta)
	if err != nil {
		return // admission has checked it
	}
	if m.NodeID == e.g.cfg.Self.NodeID {
		if m.Incarnation > e.g.cfg.Self.Incarnation {
			e.g.replace(m)
		}
		return // Set has put this node itself into the table
	}
	if e.g.table.up(m) {
		e.g.cfg.Logger.Info("a member is alive", "node", m.NodeID, "incarnation", m.Incarnation,
			"addr", m.Listen)
	}
}

// NotifyLeave is called when a member has left, or was found dead; memberlist does not say which.
func (e events) NotifyLeave(n *memberlist.Node) {
	_, m, err := decodeMeta(n.Meta)
	if err != nil || m.NodeID == e.g.cfg.Self.NodeID {
		return
	}
	e.g.table.down(m)
	e.g.cfg.Logger.Info("a member has left or died", "node", m.NodeID, "incarnation", m.Incarnation,
		"addr", m.Listen)
}

// admission is invariant 2.
type admission struct{ g *Gossip }

// check is nil if the member may be in the table.
func (a admission) check(n *memberlist.Node) error {
	hash, m, err := decodeMeta(n.Meta)
	if err != nil {
		return err
	}
	if hash != a.g.hash {
		a.g.mourn.tell(n.Address(), "gossip: a node of another cluster was refused; give each cluster its own addresses and keys",
			"addr", n.Address(), "node", m.NodeID)
		return fmt.Errorf("%w: %s", errOtherCluster, n.Address())
	}
	if n.Name != nameOf(workerOf(m)) {
		return errName
	}
	newest, room := a.g.table.newestOf(m.NodeID)
	switch {
	case m.Incarnation < newest:
		return errStale
	case !room:
		return errFull
	}
	return nil
}

// NotifyAlive is called under memberlist's lock for every word of a living member, this
// one included. An error leaves it out.
func (a admission) NotifyAlive(n *memberlist.Node) error { return a.check(n) }

// NotifyMerge is called when a node wants to join, and by the node that joins. An error
// refuses all of it. What is merely stale is left out one by one.
func (a admission) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if err := a.check(n); err != nil && !errors.Is(err, errStale) {
			return err
		}
	}
	return nil
}

// NotifyConflict is called under memberlist's lock when one incarnation shows up at two
// addresses: two processes run on copies of one directory. The one that was known first
// is kept.
func (a admission) NotifyConflict(have, other *memberlist.Node) {
	a.g.mourn.tell(have.Name, "gossip: two processes have one identity: a directory was copied; stop one of them",
		"incarnation", have.Name, "kept", have.Address(), "refused",
		net.JoinHostPort(other.Addr.String(), fmt.Sprint(other.Port)))
}

// mourner logs a fault that lasts once a minute.
type mourner struct {
	logger *slog.Logger

	mu   sync.Mutex
	told map[string]time.Time
}

const (
	tellEvery = time.Minute
	maxTold   = 1024
)

func (m *mourner) tell(about, text string, args ...any) {
	m.mu.Lock()
	now := time.Now()
	late := now.Sub(m.told[about]) >= tellEvery
	if late {
		if m.told == nil || len(m.told) >= maxTold {
			m.told = map[string]time.Time{}
		}
		m.told[about] = now
	}
	m.mu.Unlock()
	if late {
		m.logger.Warn(text, args...)
	}
}
