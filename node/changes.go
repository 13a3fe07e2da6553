package node

import (
	"context"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// changes is what the node does when something around it has changed: who leads meta, who
// is alive. Goroutines of its own do it, for it waits for meta: one for changes, one for
// other nodes' questions that take a while, and three that look at meta.
//
// It owns who was alive and whether this node led meta when it last looked, and the
// questions that wait. Tablets and gossip wake it, on any goroutine and without waiting.
// One look may be under way, and one more is owed however often it is woken meanwhile.
type changes struct {
	n      *Node
	again  chan struct{} // capacity 1: something may have changed
	asked  chan peerAsk
	ctx    context.Context
	cancel context.CancelFunc
	runs   sync.WaitGroup

	jobs      *leaderJobs
	sight     *metaSight
	publisher publisher
	members   map[uint64]cluster.Member // as of the last look; the worker's own
	// in which this node led meta, as of the last look, or 0; likewise
	term uint64
}

// peerAsk is another node's question.
type peerAsk struct {
	deadline time.Time
	req      *wire.PeerRequest
	reply    func(*wire.PeerResponse)
}

const (
	// lookPause is how often the node looks who leads meta although nobody has told it of
	// a change. Tablets and gossip do.
	lookPause = time.Second
	// maxAsked bounds the questions of other nodes that wait.
	maxAsked = 256
	// honourTimeout bounds the reading of the catalogue after a change of the members.
	honourTimeout = 2 * time.Second
)

func newChanges(n *Node) *changes {
	c := &changes{
		n: n, again: make(chan struct{}, 1), asked: make(chan peerAsk, maxAsked),
		members: map[uint64]cluster.Member{},
		jobs:    &leaderJobs{},
	}
	c.sight = newMetaSight(func(ctx context.Context) error {
		_, err := n.meta.Catalogue(ctx)
		return err
	})
	c.ctx, c.cancel = context.WithCancel(n.life)
	return c
}

// start begins the work, once the node has a client.
func (c *changes) start() {
	c.publisher = publisher{members: c.n.others.members, tablets: c.n.tablets}
	if !c.n.cfg.Store.InMemory {
		c.publisher.store = c.n.store
	}
	c.runs.Go(c.run)
	c.runs.Go(c.answer)
	c.runs.Go(func() { c.sight.watch(c.ctx) })
	c.runs.Go(func() { c.n.observers.watchTables(c.ctx) })
	if files := c.n.certs.files; files != nil {
		c.runs.Go(func() { files.Watch(c.ctx) })
	}
	router := c.n.router // it hears of no tablet that it has no replica of
	holdsSome := func() bool { return len(router.Held()) < len(router.All()) }
	c.runs.Go(func() { rereadMap(c.ctx, holdsSome, router.Refresh) })
}

// wake has the worker look at once. It never blocks.
func (c *changes) wake() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// run looks at what may have changed, when it is told to and from time to time.
func (c *changes) run() {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		term := c.n.tablets.leadsMeta(c.ctx)
		c.jobs.follow(c.ctx, term != 0)
		if term != c.term && term != 0 {
			c.n.observers.registration.wake() // what another node has left half told
		}
		c.term = term
		c.publisher.publish(c.ctx, term)
		c.look()
		select {
		case <-c.again:
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// stop ends the goroutines, then the jobs, as far as ctx allows.
func (c *changes) stop(ctx context.Context) error {
	c.cancel()
	c.runs.Wait()
	for {
		select {
		case a := <-c.asked:
			a.reply(refused(pb.Error_CODE_UNAVAILABLE, "the node is stopping"))
			continue
		default:
		}
		break
	}
	return c.jobs.end(ctx)
}

// look compares the members with those of the last look. What an incarnation that is gone
// held of advisory locks is given back, and after a node has come this one reads the
// catalogue again: it may be this one that was cut off.
func (c *changes) look() {
	now := map[uint64]cluster.Member{}
	for _, m := range c.n.others.members.Alive() {
		now[m.NodeID] = m
	}
	came := false
	for id, m := range now {
		before, known := c.members[id]
		came = came || !known
		if known && before.Incarnation != m.Incarnation {
			c.gone(before)
		}
	}
	for id, m := range c.members {
		if _, alive := now[id]; !alive {
			c.gone(m)
		}
	}
	first := len(c.members) == 0
	if c.term != 0 && (came || len(now) != len(c.members)) {
		c.n.observers.registration.wake() // one that has gone may have left something half told
	}
	c.members = now
	if came {
		c.rememberNodes()
		c.n.joining.door.LookAgain()
	}
	if came && !first {
		ctx, cancel := context.WithTimeout(c.ctx, honourTimeout)
		defer cancel()
		if err := c.n.observers.honour(ctx); err != nil && c.ctx.Err() == nil {
			c.n.cfg.Logger.Warn("the observer catalogue could not be read after a change of the cluster", "error", err)
		}
	}
}

// rememberNodes has the node table at hand for when meta does not answer: it changes as nodes come.
func (c *changes) rememberNodes() {
	if c.n.others.peers == nil || !c.n.serving.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, honourTimeout)
	defer cancel()
	if err := c.n.admin.RememberNodes(ctx); err != nil && c.ctx.Err() == nil {
		c.n.cfg.Logger.Debug("the node table could not be read after a change of the cluster",
			"error", err)
	}
}

// gone gives back what an incarnation of a node held. What it may have died of is run with care.
func (c *changes) gone(m cluster.Member) {
	c.n.observers.suspect()
	if l := c.n.lockd.Load(); l != nil {
		first := ownerOf(m.NodeID, m.Incarnation)
		l.Forget(first, first+ownersOfOne-1)
	}
}

// ask takes another node's question. It never blocks.
func (c *changes) ask(deadline time.Time, req *wire.PeerRequest, reply func(*wire.PeerResponse)) {
	select {
	case c.asked <- peerAsk{deadline, req, reply}:
	default:
		reply(refused(pb.Error_CODE_OVERLOADED, "too many questions wait"))
	}
}

// answer answers other nodes' questions, one after the other.
func (c *changes) answer() {
	for {
		select {
		case a := <-c.asked:
			a.reply(c.respond(a))
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *changes) respond(a peerAsk) *wire.PeerResponse {
	ctx, cancel := context.WithDeadline(c.ctx, a.deadline)
	defer cancel()
	switch body := a.req.Body.(type) {
	case *wire.PeerRequest_Status:
		if body.Status.GetObservers() {
			return &wire.PeerResponse{
				Body: &wire.PeerResponse_Status{Status: c.n.observers.status()},
			}
		}
		status, _ := c.n.status.get(ctx, body.Status.GetLeading()) // what could be gathered in time
		return &wire.PeerResponse{Body: &wire.PeerResponse_Status{Status: status}}
	case *wire.PeerRequest_Honour:
		if err := c.n.observers.honour(ctx); err != nil {
			return refused(pb.Error_CODE_UNAVAILABLE, "the catalogue could not be read: %v", err)
		}
		c.jobs.wakeBackfills()
		return &wire.PeerResponse{
			Body: &wire.PeerResponse_Honour{
				Honour: &wire.Honoured{Version: body.Honour.GetVersion()},
			},
		}
	}
	return refused(pb.Error_CODE_INVALID, "unknown question")
}

// ownersOfOne is how many owners of advisory locks one process may be.
const ownersOfOne = 1 << 16

// ownerOf is the first number by which an incarnation of a node owns advisory locks. Two
// incarnations with the same number may do work twice, as without locks.
func ownerOf(node, incarnation uint64) uint64 {
	const spread = 0x9e3779b97f4a7c15 // odd: neighbours are far apart
	return max(1, (node*spread+incarnation)<<16)
}
