package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// telling is what this node has others hear by gossip of itself, and when.
type telling struct {
	leadsMeta uint64
	holding   holding
	loadAt    time.Time // when the load was told last
}

// holding is how many replicas a node has, and how many of them it believes to lead.
type holding struct{ replicas, leaders int }

const (
	// loadPause is how often a node tells how much it has to do.
	loadPause = 5 * time.Second
	// holdingPause is how often at most it does because it holds more or less than
	// before, such as while it is drained.
	holdingPause = time.Second
)

// setter is a Members that lets a node change what it says of itself: gossip, and what a
// node without it is alone in.
type setter interface {
	Set(change func(m *cluster.Member))
}

// tell tells others that this node leads meta, or does no more, at once; what it holds
// soon after that has changed; and from time to time what its load is.
func (t *telling) tell(ctx context.Context, n *Node, leadsMeta uint64) {
	s, ok := n.members.(setter)
	if !ok {
		return
	}
	holding := n.holding()
	if !t.due(time.Now(), leadsMeta, holding) {
		return
	}
	load := n.load(ctx)
	t.leadsMeta, t.holding, t.loadAt = leadsMeta, holding, time.Now()
	s.Set(func(m *cluster.Member) { m.LeadsMeta, m.Load = leadsMeta, load })
}

// due reports whether there is something to tell now.
func (t *telling) due(now time.Time, leadsMeta uint64, h holding) bool {
	since := now.Sub(t.loadAt)
	return leadsMeta != t.leadsMeta || since >= loadPause || h != t.holding && since >= holdingPause
}

// holding counts what this node holds. It asks no replica.
func (n *Node) holding() holding {
	held := n.router.Held()
	h := holding{replicas: len(held)}
	for _, id := range held {
		if n.router.LeadsHere(id) {
			h.leaders++
		}
	}
	return h
}

// sayDraining tells others that this node is about to end: nothing is moved to it any more.
func (n *Node) sayDraining() {
	if s, ok := n.members.(setter); ok {
		s.Set(func(m *cluster.Member) { m.Draining = true })
	}
}

// load is how much this node holds and does.
func (n *Node) load(ctx context.Context) cluster.MemberLoad {
	out := cluster.MemberLoad{}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, id := range n.router.Held() {
		s := n.tabletStatus(ctx, id)
		if s == nil {
			continue
		}
		out.Replicas++
		out.SizeBytes += s.SizeBytes
		if s.Leader {
			out.Leaders++
			out.Load += s.Load
		}
	}
	if !n.cfg.Store.InMemory {
		if free, err := n.store.FreeBytes(); err == nil {
			out.DiskFree = free
		}
	}
	return out
}
