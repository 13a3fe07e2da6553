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

// Callbacks of memberlist. They run on its goroutines and mostly under its lock, so they
// neither call memberlist nor wait: they copy into the table and return. admission decides
// which members memberlist accepts.

// Reasons for refusing a member.
var (
	errOtherCluster = errors.New("gossip: the member belongs to another cluster")
	errStale        = errors.New("gossip: a later incarnation of the member is known")
	errFull         = errors.New("gossip: the table of members is full")
	errName         = errors.New("gossip: the member's name does not match the node and incarnation in its metadata")
)

// delegate supplies memberlist with this node's metadata. No other user data is sent.
type delegate struct{ g *Gossip }

// NodeMeta returns the metadata. memberlist calls it when the node joins and after Set, and
// owns the bytes.
func (d delegate) NodeMeta(limit int) []byte {
	d.g.mu.Lock()
	self := d.g.self
	d.g.mu.Unlock()
	b, err := encodeMeta(d.g.hash, self)
	if err != nil || len(b) > limit { // cannot happen: Open has checked the size
		d.g.cfg.Logger.Error("gossip: this node's metadata does not fit", "bytes", len(b), "error",
			err)
		return nil
	}
	return b
}

// NotifyMsg drops user messages: nodes send none.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts returns no broadcasts.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns no state.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores the state of another node: nodes send none.
func (delegate) MergeRemoteState([]byte, bool) {}

// events copies changes of members into the table. memberlist calls it under its lock:
// nothing here blocks or calls back.
type events struct{ g *Gossip }

// NotifyJoin is called when a member joins or is alive again.
func (e events) NotifyJoin(n *memberlist.Node) { e.NotifyUpdate(n) }

// NotifyUpdate is called when a member's metadata changes.
func (e events) NotifyUpdate(n *memberlist.Node) {
	_, m, err := decodeMeta(n.Meta)
	if err != nil {
		return // cannot happen: admission has decoded it
	}
	if m.NodeID == e.g.cfg.Self.NodeID {
		// A later process has this node's identity.
		if m.Incarnation > e.g.cfg.Self.Incarnation {
			e.g.replace(m)
		}
		return // Set keeps this node's own entry
	}
	if e.g.table.up(m) {
		e.g.cfg.Logger.Info("member is alive", "node", m.NodeID, "incarnation", m.Incarnation,
			"addr", m.Listen)
	}
}

// NotifyLeave is called when a member left or died; memberlist does not distinguish them.
func (e events) NotifyLeave(n *memberlist.Node) {
	_, m, err := decodeMeta(n.Meta)
	if err != nil || m.NodeID == e.g.cfg.Self.NodeID {
		return
	}
	e.g.table.down(m)
	e.g.cfg.Logger.Info("member left or died", "node", m.NodeID, "incarnation", m.Incarnation,
		"addr", m.Listen)
}

// admission rejects members of another cluster, with a stale incarnation, of a build that the
// cluster no longer admits, whose name contradicts their metadata, or that do not fit into the
// table.
type admission struct{ g *Gossip }

// NotifyAlive is called under memberlist's lock for every report of a living member, this node
// included. An error refuses the member.
func (a admission) NotifyAlive(n *memberlist.Node) error {
	hash, m, err := decodeMeta(n.Meta)
	if err != nil {
		return err
	}
	if hash != a.g.hash {
		a.g.faults.log(n.Address(),
			"gossip: refused a node of another cluster; give each cluster its own addresses and keys",
			"addr", n.Address(), "node", m.NodeID)
		return fmt.Errorf("%w: %s", errOtherCluster, n.Address())
	}
	// memberlist identifies members by name, the table by metadata: both must name the same
	// incarnation.
	if n.Name != nameOf(workerOf(m)) {
		return errName
	}
	if gate := a.g.cfg.Gate; gate != nil {
		if err := gate.Agreed().Admit(m.Versions); err != nil {
			a.g.faults.log(n.Address(), "gossip: refused a node", "addr", n.Address(), "node", m.NodeID,
				"error", err)
			return err
		}
	}
	newest, room := a.g.table.newestOf(m.NodeID)
	switch {
	case m.Incarnation < newest:
		return errStale
	// A full table refuses only unknown nodes.
	case !room:
		return errFull
	}
	return nil
}

// NotifyMerge is called on both sides of an exchange of members. An error refuses the whole
// exchange, so it ignores stale members and those of incompatible builds; NotifyAlive refuses them
// one by one.
func (a admission) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		// For a while exchanges contain old incarnations, also of earlier builds; refusing
		// such an exchange would keep live nodes apart.
		if err := a.NotifyAlive(n); err != nil && !errors.Is(err, errStale) &&
			!errors.Is(err, version.ErrIncompatible) {
			return err
		}
	}
	return nil
}

// NotifyConflict is called under memberlist's lock when one incarnation is reported at two
// addresses: two processes run on copies of one directory. memberlist keeps the first.
func (a admission) NotifyConflict(have, other *memberlist.Node) {
	a.g.faults.log(have.Name,
		"gossip: two processes have the same identity: a directory was copied; stop one of them",
		"incarnation", have.Name, "kept", have.Address(), "refused",
		net.JoinHostPort(other.Addr.String(), fmt.Sprint(other.Port)))
}

// faultLog logs each persistent fault at most once a minute.
type faultLog struct {
	logger *slog.Logger

	// logged is the time of each fault's last line; mu guards it.
	mu     sync.Mutex
	logged map[string]time.Time
}

const (
	repeatAfter = time.Minute
	maxLogged   = 1024
)

// log logs text unless the fault with this key was logged within repeatAfter.
func (f *faultLog) log(key, text string, args ...any) {
	f.mu.Lock()
	now := time.Now()
	late := now.Sub(f.logged[key]) >= repeatAfter
	if late {
		// Clear the map when it is full; at worst some lines are repeated early.
		if f.logged == nil || len(f.logged) >= maxLogged {
			f.logged = map[string]time.Time{}
		}
		f.logged[key] = now
	}
	f.mu.Unlock()
	if late {
		f.logger.Warn(text, args...)
	}
}
