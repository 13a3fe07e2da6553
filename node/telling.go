package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// telling is what this node has others hear by gossip of itself, and when.
type telling struct {
	leadsMeta uint64
	loadAt    time.Time // when the load was told last
}

// loadPause is how often a node tells how much it has to do.
const loadPause = 5 * time.Second

// setter is a Members that lets a node change what it says of itself: gossip, and what a node without it is alone in.
type setter interface {
	Set(change func(m *cluster.Member))
}

// tell tells others that this node leads meta, or does no more, at once, and from time to time what its load is.
func (t *telling) tell(ctx context.Context, n *Node, leadsMeta uint64) {
	s, ok := n.members.(setter)
	if !ok || (leadsMeta == t.leadsMeta && time.Since(t.loadAt) < loadPause) {
		return
	}
	load := n.load(ctx)
	t.leadsMeta, t.loadAt = leadsMeta, time.Now()
	s.Set(func(m *cluster.Member) { m.LeadsMeta, m.Load = leadsMeta, load })
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
