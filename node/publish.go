package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/store"
)

// publisher has others hear by gossip what this node is like, when that has changed or
// some time has passed. It owns what they were told last. The worker that looks after
// changes calls it, nobody else.
type publisher struct {
	members cluster.Members
	tablets *tablets
	store   *store.Store // nil: it has no disk

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

// publish changes what a node says of itself, where Members lets it: gossip does, and
// what a node without it is alone in.
func publish(members cluster.Members, change func(m *cluster.Member)) {
	if s, ok := members.(interface {
		Set(change func(m *cluster.Member))
	}); ok {
		s.Set(change)
	}
}

// publish tells others that this node leads meta, or does no more, at once; what it holds
// soon after that has changed; and from time to time what its load is.
func (p *publisher) publish(ctx context.Context, leadsMeta uint64) {
	holding := p.tablets.holding()
	if !p.due(time.Now(), leadsMeta, holding) {
		return
	}
	load := p.load(ctx)
	p.leadsMeta, p.holding, p.loadAt = leadsMeta, holding, time.Now()
	publish(p.members, func(m *cluster.Member) { m.LeadsMeta, m.Load = leadsMeta, load })
}

// due reports whether there is something to tell now.
func (p *publisher) due(now time.Time, leadsMeta uint64, h holding) bool {
	since := now.Sub(p.loadAt)
	return leadsMeta != p.leadsMeta || since >= loadPause || h != p.holding && since >= holdingPause
}

// holding counts what this node holds. It asks no replica.
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

// load is how much this node holds and does.
func (p *publisher) load(ctx context.Context) cluster.MemberLoad {
	out := cluster.MemberLoad{}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, id := range p.tablets.router.Held() {
		s := p.tablets.status(ctx, id)
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
	if p.store != nil {
		if free, err := p.store.FreeBytes(); err == nil {
			out.DiskFree = free
		}
	}
	return out
}
