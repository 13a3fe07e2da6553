package node

import (
	"context"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/store"
)

// publisher announces by gossip what this node leads and holds and its load, on changes and
// periodically. It owns the last announcement. Only the worker of changes calls it; it waits up to
// 1 s for this node's replicas.
type publisher struct {
	members cluster.Members
	tablets *tablets
	store   *store.Store // nil: in memory

	// The last announcement; leadsMeta is a term, or 0.
	leadsMeta uint64
	holding   holding
	loadAt    time.Time // time of the last announced load
}

// holding counts a node's replicas and those that it believes to lead.
type holding struct{ replicas, leaders int }

const (
	// loadPause is the time after which the load is announced again.
	loadPause = 5 * time.Second
	// holdingPause is the least time between two announcements of changed holdings, such as during a
	// drain.
	holdingPause = time.Second
)

// publish updates the node's own member record, if members supports that: gossip does; a test's
// members may not.
func publish(members cluster.Members, change func(m *cluster.Member)) {
	if s, ok := members.(interface {
		Set(change func(m *cluster.Member))
	}); ok {
		s.Set(change)
	}
}

// publish announces whether this node leads meta, at once on a change; its holdings, on a change
// but at most once per holdingPause; and its load every loadPause. leadsMeta is a term, or 0.
func (p *publisher) publish(ctx context.Context, leadsMeta uint64) {
	holding := p.tablets.holding()
	if !p.due(time.Now(), leadsMeta, holding) {
		return
	}
	load := p.load(ctx) // every announcement contains the current load
	p.leadsMeta, p.holding, p.loadAt = leadsMeta, holding, time.Now()
	publish(p.members, func(m *cluster.Member) { m.LeadsMeta, m.Load = leadsMeta, load })
}

// due reports whether an announcement is due.
func (p *publisher) due(now time.Time, leadsMeta uint64, h holding) bool {
	since := now.Sub(p.loadAt)
	return leadsMeta != p.leadsMeta || since >= loadPause || h != p.holding && since >= holdingPause
}

// holding counts this node's replicas and leaders from the router, without querying replicas.
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

// load measures this node's size and load. Replicas that do not answer within 1 s are omitted.
func (p *publisher) load(ctx context.Context) cluster.MemberLoad {
	out := cluster.MemberLoad{}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// Quiescent replicas answer from their last status and are not woken.
	for _, id := range p.tablets.router.Held() {
		s := p.tablets.status(ctx, id)
		if s == nil {
			continue
		}
		// Every replica uses space. Only the leader, which serves the tablet's operations, counts
		// load.
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
