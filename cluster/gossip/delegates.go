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

// This file is what memberlist calls back, on goroutines of its own and mostly under its
// lock, so nothing here calls memberlist or waits: callbacks copy into the table and
// return. Who is let in is decided here as well (admission), before memberlist believes a
// word.

// Why a member is not let in.
var (
	errOtherCluster = errors.New("gossip: it belongs to another cluster")
	errStale        = errors.New("gossip: a later incarnation of the node is known")
	errFull         = errors.New("gossip: too many members")
	errName         = errors.New("gossip: its name is not that of the incarnation it says it is")
)

// delegate gives memberlist what this node says of itself. No other user data travels.
type delegate struct{ g *Gossip }

// NodeMeta is called when the node joins and after Set, and may block. memberlist owns
// the bytes that it returns.
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

// NotifyMsg drops user messages: no node sends any.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts returns none.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns none.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState drops what another node sends: there should be none.
func (delegate) MergeRemoteState([]byte, bool) {}

// events copies changes of members into the table. memberlist calls it under its lock:
// nothing here blocks or calls back.
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
		// Another process runs with this node's identity, and is the later one.
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

// admission keeps out members of another cluster and stale incarnations (invariant 2).
type admission struct{ g *Gossip }

// check returns nil if the member may be in the table.
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
	// memberlist goes by the name and the table by the metadata: they must mean the same.
	if n.Name != nameOf(workerOf(m)) {
		return errName
	}
	newest, room := a.g.table.newestOf(m.NodeID)
	switch {
	case m.Incarnation < newest:
		return errStale
	// Nodes that are known stay, and come back; only a further one is turned away.
	case !room:
		return errFull
	}
	return nil
}

// NotifyAlive is called under memberlist's lock for every word of a living member, this
// one included. An error leaves the member out.
func (a admission) NotifyAlive(n *memberlist.Node) error { return a.check(n) }

// NotifyMerge is called when a node wants to join, and by the node that joins. An error
// refuses all of it. What is merely stale is left out one by one.
func (a admission) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		// Old incarnations are in every exchange for a while; refusing all of it would
		// keep nodes apart.
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

// mourner logs each lasting fault once a minute.
type mourner struct {
	logger *slog.Logger

	// told has when a fault was last logged, by what it is about; mu guards it.
	mu   sync.Mutex
	told map[string]time.Time
}

const (
	tellEvery = time.Minute
	maxTold   = 1024
)

// tell logs the text unless the same fault, named by about, was logged within tellEvery.
func (m *mourner) tell(about, text string, args ...any) {
	m.mu.Lock()
	now := time.Now()
	late := now.Sub(m.told[about]) >= tellEvery
	if late {
		// Starting over is simpler than forgetting the oldest, and some lines come twice
		// at worst.
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
