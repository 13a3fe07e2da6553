package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/store"
)

// publisher tells others by gossip what this node leads, holds and does, when that has
// changed or some time has passed. It owns what they were told last. Only the worker of
// changes calls it; it waits up to a second for this node's replicas.
type publisher struct {
	members cluster.Members
	tablets *tablets
	store   *store.Store // nil: it has no disk

	// As told last; leadsMeta is a term, or 0.
	leadsMeta uint64
	holding   holding
	loadAt    time.Time // when the load was told last
}

// holding is how many replicas a node has, and how many of them it believes to lead.
type holding struct{ replicas, leaders int }

const (
	// loadPause is the longest time between two announcements of the load.
	loadPause = 5 * time.Second
	// holdingPause is the least time between two announcements that come of holding more
	// or less than before, such as while the node is drained.
	holdingPause = time.Second
)

// publish changes what the node says of itself, if members has a method for that: gossip
// has; members that a test replaces may have none.
func publish(members cluster.Members, change func(m *cluster.Member)) {
	if s, ok := members.(interface {
		Set(change func(m *cluster.Member))
	}); ok {
		s.Set(change)
	}
}

// publish tells others whether this node leads meta, at once when that changes; what it
// holds, soon after that changes; and every loadPause its load. leadsMeta is a term, or
// 0.
func (p *publisher) publish(ctx context.Context, leadsMeta uint64) {
	holding := p.tablets.holding()
	if !p.due(time.Now(), leadsMeta, holding) {
		return
	}
	load := p.load(ctx) // every announcement carries a fresh load
	p.leadsMeta, p.holding, p.loadAt = leadsMeta, holding, time.Now()
	publish(p.members, func(m *cluster.Member) { m.LeadsMeta, m.Load = leadsMeta, load })
}

// due reports whether there is something to tell now.
func (p *publisher) due(now time.Time, leadsMeta uint64, h holding) bool {
	since := now.Sub(p.loadAt)
	return leadsMeta != p.leadsMeta || since >= loadPause || h != p.holding && since >= holdingPause
}

// holding counts what this node holds, by the router. It asks no replica.
func (t *tablets) holding() holding {
	held := t.router.Held()
	h := holding{replicas: len(held)}
	for _, id := range held {
		if t.router.LeadsHere(id) {
			h.leaders++
		}
	}
	return h
}

// load measures how much this node holds and does. Replicas that do not answer within the
// second are left out.
func (p *publisher) load(ctx context.Context) cluster.MemberLoad {
	out := cluster.MemberLoad{}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// Replicas at rest answer from their last status and are not woken.
	for _, id := range p.tablets.router.Held() {
		s := p.tablets.status(ctx, id)
		if s == nil {
			continue
		}
		// A replica takes room wherever it is. The load is the leader's alone, who serves
		// the tablet's operations.
		out.Replicas++
		out.SizeBytes += s.SizeBytes
		if s.Leader {
			out.Leaders++
			out.Load += s.Load
		}
	}
	if p.store != nil {
		if free, err := p.store.FreeBytes(); err == nil {
			out.DiskFree = free
		}
	}
	return out
}
