package node

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/percolator-go/percolator/actors/lockd"
	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/cluster/admin"
	"github.com/percolator-go/percolator/cluster/join"
	"github.com/percolator-go/percolator/internal/actorkit"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/node/hosting"
	"github.com/percolator-go/percolator/node/leaderjobs"
)

// changes reacts when it has changed who leads meta or who is alive. Its worker (run) is
// a goroutine of the node's background, because reacting means waiting for meta and for
// jobs that end.
//
// It owns who was alive, and in which term this node led meta, when it last looked.
// Tablets, gossip and the policy wake the worker on any goroutine. One look may be under
// way, and at most one more is owed, however often the worker is woken meanwhile.
type changes struct {
	woken      actorkit.Wakeup
	tablets    *tablets
	jobs       *leaderjobs.Jobs
	members    cluster.Members
	observers  *hosting.Host
	membership *join.Membership
	admin      *admin.Service
	locks      *lockd.Lockd
	logger     *slog.Logger
	publisher  publisher

	// The worker's own, as of the last look.
	alive map[uint64]cluster.Member
	term  uint64 // in which this node led meta; 0: it did not
}

const (
	// lookPause is the interval between looks while nothing wakes the worker: a wake-up
	// that was missed costs at most that long.
	lookPause = time.Second
	// metaReadTimeout bounds each reading of meta after a change of the members.
	metaReadTimeout = 2 * time.Second
)

// run is the worker: it looks at what may have changed when it is woken, and every
// lookPause. The jobs follow the leadership first; then gossip is told of it.
func (c *changes) run(ctx context.Context) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		term := c.tablets.leadsMeta(ctx)
		c.jobs.Follow(ctx, term != 0)
		if term != c.term && term != 0 {
			// The node that led meta before may have changed the catalogue and ended
			// before it had told every tablet.
			c.observers.CheckTablets()
		}
		c.term = term
		c.publisher.publish(ctx, term)
		c.compareMembers(ctx)
		select {
		case <-c.woken:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// compareMembers compares the members with those of the last look. Advisory locks of an
// incarnation that is gone are released. After a node has come, this one applies the
// catalogue again: it may have been this node that was cut off and missed changes.
func (c *changes) compareMembers(ctx context.Context) {
	now := map[uint64]cluster.Member{}
	for _, m := range c.members.Alive() {
		now[m.NodeID] = m
	}
	came := false
	for id, m := range now {
		before, known := c.alive[id]
		came = came || !known
		// Restarted between two looks: the process of before is gone all the same.
		if known && before.Incarnation != m.Incarnation {
			c.gone(before)
		}
	}
	for id, m := range c.alive {
		if _, alive := now[id]; !alive {
			c.gone(m)
		}
	}
	first := c.alive == nil // observers.start applies the catalogue by itself
	if c.term != 0 && (came || len(now) != len(c.alive)) {
		// A node that has gone may have told only some of the tablets of its change.
		c.observers.CheckTablets()
	}
	c.alive = now
	if came {
		c.membership.LookAgain()
	}
	if came && !first {
		c.readMeta(ctx)
	}
}

// readMeta reads what a node that was cut off may have missed: the catalogue, and the
// node table, so that operators can be told it while meta does not answer.
func (c *changes) readMeta(ctx context.Context) {
	read := func(what string, read func(context.Context) error) {
		attempt, cancel := context.WithTimeout(ctx, metaReadTimeout)
		defer cancel()
		if err := read(attempt); err != nil && ctx.Err() == nil {
			c.logger.Warn("meta could not be read after a change of the members", "what", what,
				"error", err)
		}
	}
	read("the node table", c.admin.RememberNodes)
	read("the observer catalogue", c.observers.ApplyCatalogue)
}

// gone releases the advisory locks that an incarnation of a node held in this node's lock
// service, and notes that the process may have died of running an observer.
func (c *changes) gone(m cluster.Member) {
	c.observers.NoteCrash()
	c.locks.Forget(hosting.LockOwners(m.NodeID, m.Incarnation))
}

// mapPause is the least time between two readings of the tablet map by a node that does
// not hold every tablet; up to a tenth is added at random, so that nodes do not read
// together. It bounds how long the node can go without knowing of a split that no request
// meets.
const mapPause = 20 * time.Second

// mapTimeout bounds one reading of the tablet map.
const mapTimeout = 5 * time.Second

// rereadMap reads the tablet map from time to time while needed returns true. It is a
// goroutine of the node's background and returns when ctx ends.
func rereadMap(ctx context.Context, needed func() bool, read func(context.Context) error) {
	for txn.Sleep(ctx, mapPause+rand.N(mapPause/10)) == nil {
		if !needed() {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, mapTimeout)
		_ = read(attempt) // after an error, the next reading brings the same news
		cancel()
	}
}
