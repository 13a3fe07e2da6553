package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/wire"
)

// changes reacts when something around the node has changed: who leads meta, who is
// alive. It has goroutines of its own, because reacting means waiting for meta: the
// worker (run), one that answers other nodes' requests that wait for something (answer),
// those that look at meta, at the catalogue and at the tablet map from time to time, and,
// with certificates, one that watches their files. The runner of registration is one
// more.
//
// It owns who was alive and in which term this node led meta when it last looked, and the
// requests that wait. Tablets and gossip wake the worker, on any goroutine and without
// waiting. One look may be under way, and at most one more is owed, however often the
// worker is woken meanwhile.
type changes struct {
	n      *Node
	again  chan struct{} // capacity 1: something may have changed
	asked  chan peerAsk
	ctx    context.Context
	cancel context.CancelFunc
	runs   sync.WaitGroup

	jobs      *leaderJobs
	health    *metaHealth
	publisher publisher
	members   map[uint64]cluster.Member // as of the last look; the worker's own
	// term is the one in which this node led meta at the last look, 0 if it did not. Only
	// the worker uses it.
	term uint64
}

// peerAsk is another node's request that waits for answer. reply is called once.
type peerAsk struct {
	deadline time.Time
	req      *wire.PeerRequest
	reply    func(*wire.PeerResponse)
}

const (
	// lookPause is the interval between looks while nothing wakes the worker: a wake-up
	// that was missed costs at most that long.
	lookPause = time.Second
	// maxAsked bounds the requests of other nodes that wait.
	maxAsked = 256
	// catalogueTimeout bounds the reading of the catalogue after a change of the members.
	catalogueTimeout = 2 * time.Second
)

// newChanges returns the changes of a node whose parts do not exist yet. wake and ask may
// be called at once; start begins the work.
func newChanges(n *Node) *changes {
	c := &changes{
		n: n, again: make(chan struct{}, 1), asked: make(chan peerAsk, maxAsked),
		members: map[uint64]cluster.Member{},
		jobs:    &leaderJobs{},
	}
	c.health = newMetaHealth(func(ctx context.Context) error {
		_, err := n.meta.Observers.Catalogue(ctx)
		return err
	})
	c.ctx, c.cancel = context.WithCancel(n.life)
	return c
}

// start begins the work, once the node has a client. stop joins the goroutines.
func (c *changes) start() {
	c.publisher = publisher{members: c.n.others.members, tablets: c.n.tablets}
	if !c.n.cfg.Store.InMemory {
		c.publisher.store = c.n.store
	}
	c.runs.Go(c.run)
	c.runs.Go(c.answer)
	c.runs.Go(func() { c.health.watch(c.ctx) })
	c.runs.Go(func() { c.n.observers.watchTables(c.ctx) })
	if files := c.n.certs.files; files != nil {
		c.runs.Go(func() { files.Watch(c.ctx) })
	}
	// A node with a replica of every tablet hears of all changes from them; others have
	// to read the map.
	router := c.n.router
	holdsSome := func() bool { return len(router.Held()) < len(router.All()) }
	c.runs.Go(func() { rereadMap(c.ctx, holdsSome, router.Refresh) })
}

// wake has the worker look at once. It never blocks.
func (c *changes) wake() {
	select {
	case c.again <- struct{}{}:
	default: // a look is owed already, and will see this change too
	}
}

// run is the worker: it looks at what may have changed when it is woken, and every
// lookPause. The jobs follow the leadership first; then gossip is told of it.
func (c *changes) run() {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		term := c.n.tablets.leadsMeta(c.ctx)
		c.jobs.follow(c.ctx, term != 0)
		if term != c.term && term != 0 {
			// The node that led meta before may have changed the catalogue and ended
			// before it had told every tablet.
			c.n.observers.registration.wake()
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

// stop ends the goroutines and waits for them, refuses the requests that still wait, and
// then ends the jobs, for which it waits as long as ctx allows.
func (c *changes) stop(ctx context.Context) error {
	c.cancel()
	c.runs.Wait()
	// Nobody takes requests any more. One that is queued after this loop gets no answer:
	// its caller waits until its deadline, or until gossip knows that this node has gone.
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

// look compares the members with those of the last look. Advisory locks of an incarnation
// that is gone are released. After a node has come, this one applies the catalogue again:
// it may have been this node that was cut off and missed changes.
func (c *changes) look() {
	now := map[uint64]cluster.Member{}
	for _, m := range c.n.others.members.Alive() {
		now[m.NodeID] = m
	}
	came := false
	for id, m := range now {
		before, known := c.members[id]
		came = came || !known
		// Restarted between two looks: the process of before is gone all the same.
		if known && before.Incarnation != m.Incarnation {
			c.gone(before)
		}
	}
	for id, m := range c.members {
		if _, alive := now[id]; !alive {
			c.gone(m)
		}
	}
	first := len(c.members) == 0 // observers.start applies the catalogue by itself
	if c.term != 0 && (came || len(now) != len(c.members)) {
		c.n.observers.registration.wake() // one that has gone may have left something half told
	}
	c.members = now
	if came {
		c.rememberNodes()
		c.n.joining.door.LookAgain()
	}
	if came && !first {
		ctx, cancel := context.WithTimeout(c.ctx, catalogueTimeout)
		defer cancel()
		if err := c.n.observers.applyCatalogue(ctx); err != nil && c.ctx.Err() == nil {
			c.n.cfg.Logger.Warn("the observer catalogue could not be read after a change of the cluster", "error", err)
		}
	}
}

// rememberNodes reads the node table after a node has come, so that operators can be told
// it while meta does not answer. An error is not worth more than a line for debugging:
// the table that was read before stays.
func (c *changes) rememberNodes() {
	if c.n.others.peers == nil || !c.n.serving.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, catalogueTimeout)
	defer cancel()
	if err := c.n.admin.RememberNodes(ctx); err != nil && c.ctx.Err() == nil {
		c.n.cfg.Logger.Debug("the node table could not be read after a change of the cluster",
			"error", err)
	}
}

// gone releases the advisory locks that an incarnation of a node held in this node's lock
// service, and marks what has changed until now as suspect: the process may have died of
// running an observer on it.
func (c *changes) gone(m cluster.Member) {
	c.n.observers.noteCrash()
	if l := c.n.lockd.Load(); l != nil {
		first := ownerOf(m.NodeID, m.Incarnation)
		l.Forget(first, first+ownersOfOne-1)
	}
}

// ask queues another node's request for answer. It never blocks: if maxAsked requests
// wait, this one is refused.
func (c *changes) ask(deadline time.Time, req *wire.PeerRequest, reply func(*wire.PeerResponse)) {
	select {
	case c.asked <- peerAsk{deadline, req, reply}:
	default:
		reply(refused(pb.Error_CODE_OVERLOADED, "too many questions wait"))
	}
}

// answer answers other nodes' requests one after another, which bounds what they can make
// this node do at once.
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

// respond answers one request, within its deadline. It waits for meta and for tablets.
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
		if err := c.n.observers.applyCatalogue(ctx); err != nil {
			return refused(pb.Error_CODE_UNAVAILABLE, "the catalogue could not be read: %v", err)
		}
		// The same request serves as the hint to look for back-fills, see
		// observers.wakeBackfills.
		c.jobs.wakeBackfills()
		return &wire.PeerResponse{
			Body: &wire.PeerResponse_Honour{
				Honour: &wire.Honoured{Version: body.Honour.GetVersion()},
			},
		}
	}
	return refused(pb.Error_CODE_INVALID, "unknown question")
}

// ownersOfOne is the number of owners of advisory locks that one process can have.
const ownersOfOne = 1 << 16

// ownerOf returns the first of the ownersOfOne numbers under which an incarnation of a
// node owns advisory locks; it is never 0. The numbers are a hash. If two incarnations
// share them, both may do the same work, as they would without locks.
func ownerOf(node, incarnation uint64) uint64 {
	const spread = 0x9e3779b97f4a7c15 // odd: neighbours are far apart
	return max(1, (node*spread+incarnation)<<16)
}

// mapPause is the least time between two readings of the tablet map by a node that does
// not hold every tablet; up to a tenth is added at random, so that nodes do not read
// together. It bounds how long the node can go without knowing of a split that no request
// meets.
const mapPause = 20 * time.Second

// mapTimeout bounds one reading of the tablet map.
const mapTimeout = 5 * time.Second

// rereadMap reads the tablet map from time to time while needed returns true. It is a
// goroutine of changes and returns when ctx ends.
func rereadMap(ctx context.Context, needed func() bool, read func(context.Context) error) {
	for {
		pause := time.NewTimer(mapPause + rand.N(mapPause/10))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		if !needed() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, mapTimeout)
		_ = read(attempt) // the next reading comes, and misses read it as well
		cancel()
	}
}
