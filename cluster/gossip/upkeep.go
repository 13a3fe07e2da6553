package gossip

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/percolator-go/percolator/cluster"
	"github.com/percolator-go/percolator/internal/txn"
)

// Goroutines of a Gossip. Each runs one loop from Open until life ends; Close joins them.
// They share the table, the channels and memberlist, which they call without holding a lock.

// deliver calls the watchers and Replaced, on a goroutine that is not memberlist's.
func (g *Gossip) deliver() {
	for {
		select {
		case <-g.life.Done():
			return
		case <-g.table.wake:
			g.table.deliver()
		case by := <-g.replaced:
			if g.cfg.Replaced != nil {
				g.cfg.Replaced(by)
			}
		}
	}
}

// refresh publishes changes of this node's metadata, at most once in Timing.Update.
func (g *Gossip) refresh() {
	for {
		select {
		case <-g.life.Done():
			return
		case <-g.dirty:
		}
		if err := g.list.UpdateNode(g.cfg.Timing.Update); err != nil {
			g.cfg.Logger.Debug("gossip: an update was not published in time; the next full exchange contains it",
				"error", err)
		}
		if txn.Sleep(g.life, g.cfg.Timing.Update) != nil {
			return
		}
	}
}

// maxAttempts limits the known nodes that one round tries to join: each that hangs delays
// the round by seconds.
const maxAttempts = 8

// reuniteFor is the time after the loss of a member during which rejoin tries more often: most
// partitions end within it, and until the nodes are members again they send each other nothing.
const reuniteFor = time.Minute

// rejoin joins known nodes that are not members, as long as gossip runs. It reunites the two
// sides of a partitioned cluster.
func (g *Gossip) rejoin() {
	var lost time.Time // when a member was last lost
	for {
		for _, addr := range g.missing() {
			if g.life.Err() != nil {
				return
			}
			if _, err := g.list.Join([]string{addr}); err != nil {
				g.faults.log(addr, "gossip: cannot join a known node", "addr", addr,
					"error", err)
			}
		}
		wait := g.cfg.Timing.Rejoin
		if len(g.table.members()) < 2 || time.Since(lost) < reuniteFor {
			wait /= 10
		}
		select {
		case <-g.life.Done():
			return
		case <-g.table.lost:
			lost = time.Now()
		case <-time.After(wait/2 + rand.N(wait)):
		}
	}
}

// missing returns at most maxAttempts known addresses without a living member, in random
// order.
func (g *Gossip) missing() []string {
	if g.cfg.Known == nil {
		return nil
	}
	skip := map[string]bool{"": true, g.cfg.Self.Gossip: true}
	for _, m := range g.table.members() {
		skip[m.Gossip] = true
	}
	found := slices.Clone(g.cfg.Known())
	found = slices.DeleteFunc(found, func(addr string) bool {
		// Return each address once, however many sources name it.
		again := skip[addr]
		skip[addr] = true
		return again
	})
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found[:min(len(found), maxAttempts)]
}

// rereadKeys reloads the key file every Timing.Keys. Unusable keys leave the ring unchanged.
func (g *Gossip) rereadKeys() {
	if g.ring == nil {
		return
	}
	for txn.Sleep(g.life, g.cfg.Timing.Keys) == nil {
		keys, err := readKeys(g.cfg.Certs)
		if err == nil && sameKeys(g.ring, keys) {
			continue
		}
		if err == nil {
			err = rotate(g.ring, keys)
		}
		if err != nil {
			g.faults.log("keys", "gossip: cannot use the new keys; the old ones stay in use", "error", err)
			continue
		}
		g.cfg.Logger.Info("gossip: reloaded the keys", "keys", len(keys))
	}
}

// replace reports, once, a later incarnation of this node. It does not block.
func (g *Gossip) replace(by cluster.Member) {
	g.once.Do(func() {
		g.cfg.Logger.Error("a later incarnation of this node runs elsewhere; stopping this process",
			"node", by.NodeID, "incarnation", by.Incarnation, "its_address", by.Listen,
			"own_incarnation", g.cfg.Self.Incarnation)
		g.replaced <- by // does not block: capacity 1, sent once
	})
}
