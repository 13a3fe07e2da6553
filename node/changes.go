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

// changes reacts to changes of meta's leader and of the live members. Its worker (run) is a
// goroutine of the node's background, because it waits for meta and for jobs to end.
//
// It owns the live members and this node's term as leader of meta as of the last check. Tablets,
// gossip and the policy wake the worker on any goroutine. At most one check is in flight and one
// is pending, however often the worker is woken.
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

	// Owned by the worker, as of the last check.
	alive map[uint64]cluster.Member
	term  uint64 // in which this node led meta; 0: it did not
}

const (
	// lookPause is the interval between checks without a wake-up: it bounds the delay after a missed
	// wake-up.
	lookPause = time.Second
	// metaReadTimeout bounds each reading of meta after a node has appeared.
	metaReadTimeout = 2 * time.Second
)

// run is the worker: it checks for changes when woken and every lookPause. It starts or stops jobs
// before it announces the leadership by gossip.
func (c *changes) run(ctx context.Context) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		term := c.tablets.leadsMeta(ctx)
		c.jobs.Follow(ctx, term != 0)
		if term != c.term && term != 0 {
			// The previous leader of meta may have changed the catalogue and ended before every
			// tablet had applied the change.
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

// compareMembers compares the members with those of the last check. It releases the advisory locks
// of dead incarnations. When a node appears after the first check, it reads the node table and
// applies the catalogue again: this node may have been partitioned and missed changes.
func (c *changes) compareMembers(ctx context.Context) {
	now := map[uint64]cluster.Member{}
	for _, m := range c.members.Alive() {
		now[m.NodeID] = m
	}
	came := false
	for id, m := range now {
		before, known := c.alive[id]
		came = came || !known
		// The node has restarted between two checks, so its previous process has ended.
		if known && before.Incarnation != m.Incarnation {
			c.gone(before)
		}
	}
	for id, m := range c.alive {
		if _, alive := now[id]; !alive {
			c.gone(m)
		}
	}
	first := c.alive == nil // Host.Start applies the catalogue itself
	if c.term != 0 && (came || len(now) != len(c.alive)) {
		// A dead node may have announced its change of the catalogue to some tablets only.
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

// readMeta reads what a partitioned node may have missed: the catalogue, and the node table, which
// serves operators while meta does not answer.
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

// gone releases the advisory locks that an incarnation of a node held in this node's lock service,
// and records that the process may have crashed while running an observer.
func (c *changes) gone(m cluster.Member) {
	c.observers.NoteCrash()
	c.locks.Forget(hosting.LockOwners(m.NodeID, m.Incarnation))
}

// mapPause is the time between two periodic reads of the tablet map by a node that does not hold
// every tablet, plus a jitter of up to 10 %. It bounds the age of the map for splits that no
// request encounters.
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
		_ = read(attempt) // after an error, the next read catches up
		cancel()
	}
}
