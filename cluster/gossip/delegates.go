package gossip

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/percolator-go/percolator/internal/version"
)

// This file holds memberlist's callbacks. They run on its goroutines and mostly under its
// lock, so they neither call memberlist nor wait: they copy into the table and return.
// admission decides which members memberlist accepts.

// Why a member is not let in.
var (
	errOtherCluster = errors.New("gossip: it belongs to another cluster")
	errStale        = errors.New("gossip: a later incarnation of the node is known")
	errFull         = errors.New("gossip: too many members")
	errName         = errors.New("gossip: its name is not that of the incarnation it says it is")
)

// delegate gives memberlist this node's metadata. No other user data is sent.
type delegate struct{ g *Gossip }

// NodeMeta returns the metadata. memberlist calls it when the node joins and after Set, and
// owns the bytes.
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

// MergeRemoteState drops the state of another node: there is none.
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
		return // cannot happen: admission has decoded it
	}
	if m.NodeID == e.g.cfg.Self.NodeID {
		// Another, later process has this node's identity.
		if m.Incarnation > e.g.cfg.Self.Incarnation {
			e.g.replace(m)
		}
		return // Set keeps this node's own entry
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
		a.g.faults.log(n.Address(),
			"gossip: a node of another cluster was refused; give each cluster its own addresses and keys",
			"addr", n.Address(), "node", m.NodeID)
		return fmt.Errorf("%w: %s", errOtherCluster, n.Address())
	}
	// memberlist uses the name and the table the metadata: they must name the same
	// incarnation.
	if n.Name != nameOf(workerOf(m)) {
		return errName
	}
	if gate := a.g.cfg.Gate; gate != nil {
		if err := gate.Agreed().Admit(m.Versions); err != nil {
			a.g.faults.log(n.Address(), "gossip: a node was refused", "addr", n.Address(), "node", m.NodeID,
				"error", err)
			return err
		}
	}
	newest, room := a.g.table.newestOf(m.NodeID)
	switch {
	case m.Incarnation < newest:
		return errStale
	// A full table refuses only nodes that it does not know.
	case !room:
		return errFull
	}
	return nil
}

// NotifyAlive is called under memberlist's lock for every report of a living member, this
// node included. An error keeps the member out.
func (a admission) NotifyAlive(n *memberlist.Node) error { return a.check(n) }

// NotifyMerge is called on both sides of an exchange of members. An error refuses the whole
// exchange, so stale members do not count here; NotifyAlive keeps them out one by one.
func (a admission) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		// Exchanges contain old incarnations for a while, also of earlier builds; refusing
		// them would keep nodes apart.
		if err := a.check(n); err != nil && !errors.Is(err, errStale) &&
			!errors.Is(err, version.ErrIncompatible) {
			return err
		}
	}
	return nil
}

// NotifyConflict is called under memberlist's lock when one incarnation is reported at two
// addresses: two processes run on copies of one directory. memberlist keeps the one that
// it knew first.
func (a admission) NotifyConflict(have, other *memberlist.Node) {
	a.g.faults.log(have.Name,
		"gossip: two processes have one identity: a directory was copied; stop one of them",
		"incarnation", have.Name, "kept", have.Address(), "refused",
		net.JoinHostPort(other.Addr.String(), fmt.Sprint(other.Port)))
}

// faultLog logs each lasting fault once a minute.
type faultLog struct {
	logger *slog.Logger

	// told is the time at which each fault was last logged; mu guards it.
	mu   sync.Mutex
	told map[string]time.Time
}

const (
	tellEvery = time.Minute
	maxTold   = 1024
)

// log logs the text unless the fault with the key was logged within tellEvery.
func (f *faultLog) log(key, text string, args ...any) {
	f.mu.Lock()
	now := time.Now()
	late := now.Sub(f.told[key]) >= tellEvery
	if late {
		// When the map is full it is emptied; at worst some lines are logged again.
		if f.told == nil || len(f.told) >= maxTold {
			f.told = map[string]time.Time{}
		}
		f.told[key] = now
	}
	f.mu.Unlock()
	if late {
		f.logger.Warn(text, args...)
	}
}
