package gossip

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/percolator-go/percolator/cluster"
)

// This file holds the goroutines of a Gossip. Each runs one loop from Open until life
// ends; Close joins them. Apart from memberlist, which they may call because no lock of
// theirs is held, they share only the table and the channels.

// deliver calls watchers on a goroutine apart from memberlist's, and Replaced on the
// same.
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

// pause waits for d. It returns false if gossip has ended.
func (g *Gossip) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-g.life.Done():
		return false
	case <-t.C:
		return true
	}
}

// refresh spreads changes of what this node says of itself, at most once in
// Timing.Update.
func (g *Gossip) refresh() {
	for {
		select {
		case <-g.life.Done():
			return
		case <-g.dirty:
		}
		if err := g.list.UpdateNode(g.cfg.Timing.Update); err != nil {
			g.cfg.Logger.Debug("gossip: an update was not spread in time; the next exchange of everything carries it", "error", err)
		}
		if !g.pause(g.cfg.Timing.Update) {
			return
		}
	}
}

// maxAsked bounds how many known nodes are asked in one round: each that hangs delays it
// by seconds.
const maxAsked = 8

// rejoin asks known nodes that are no members to take this node in, for as long as it
// runs: that is how two halves of a cluster that were cut off from each other merge
// again.
func (g *Gossip) rejoin() {
	for {
		strangers := g.strangers()
		for _, addr := range strangers {
			if g.life.Err() != nil {
				return
			}
			if _, err := g.list.Join([]string{addr}); err != nil {
				g.mourn.tell(addr, "gossip: a known node does not take this one in", "addr", addr,
					"error", err)
			}
		}
		wait := g.cfg.Timing.Rejoin
		if len(g.table.members()) < 2 {
			// A node that knows nobody tries more often: it is of no use until it has
			// been let in.
			wait /= 10 // alone
		}
		if !g.pause(wait/2 + rand.N(wait)) {
			return
		}
	}
}

// strangers returns some known addresses at which there is no living member, in random
// order.
func (g *Gossip) strangers() []string {
	if g.cfg.Known == nil {
		return nil
	}
	skip := map[string]bool{"": true, g.cfg.Self.Gossip: true}
	for _, m := range g.table.members() {
		skip[m.Gossip] = true
	}
	found := slices.Clone(g.cfg.Known())
	found = slices.DeleteFunc(found, func(addr string) bool {
		// Each address once, however many sources name it.
		again := skip[addr]
		skip[addr] = true
		return again
	})
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	return found[:min(len(found), maxAsked)]
}

// rereadKeys looks at the key file now and then. Keys that cannot be used change nothing.
func (g *Gossip) rereadKeys() {
	if g.ring == nil {
		return
	}
	for g.pause(g.cfg.Timing.Keys) {
		keys, err := readKeys(g.cfg.Certs)
		if err == nil && sameKeys(g.ring, keys) {
			continue
		}
		if err == nil {
			err = rotate(g.ring, keys)
		}
		if err != nil {
			g.mourn.tell("keys", "gossip: the keys stay as they are", "error", err)
			continue
		}
		g.cfg.Logger.Info("gossip: the keys have changed", "keys", len(keys))
	}
}

// replace reports, once, a later incarnation of this node. It does not block.
func (g *Gossip) replace(by cluster.Member) {
	g.once.Do(func() {
		g.cfg.Logger.Error("a later incarnation of this node runs elsewhere; this process must end",
			"node", by.NodeID, "incarnation", by.Incarnation, "its_address", by.Listen,
			"own_incarnation", g.cfg.Self.Incarnation)
		g.replaced <- by // has room for it
	})
}
