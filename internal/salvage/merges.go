package salvage

import (
	"slices"

	"github.com/percolator-go/percolator/internal/wire"
)

// Planning for tablets that were being merged when the quorum was lost (docs/adr/0053). The left
// tablet's log decides: if the surviving log contains the merge, Apply merges the two replicas and the
// right tablet ceases to exist. Otherwise the right tablet is released and survives.

// cutTakings cuts logs before a merge that must not be applied.
func (p *planner) cutTakings() {
	for _, found := range p.found {
		for _, c := range found {
			i := slices.IndexFunc(c.Takings, func(t Taking) bool { return !p.mayTake(c, t) })
			if i < 0 {
				continue
			}
			t := c.Takings[i]
			c.Final, c.Last, c.LastTerm = t.Before, t.Index, t.Term
			if c.Committed > c.Last {
				c.Settled, c.Committed = t.Before, c.Last
			}
			p.cutBorn(c)
		}
	}
}

// mayTake reports whether the merge may be applied: the frozen tablet was not released, which would
// prove that the merge is not committed, and the frozen replica is on the same node.
func (p *planner) mayTake(c *candidate, t Taking) bool {
	frozen := p.found[t.Tablet]
	released := slices.ContainsFunc(frozen, func(r *candidate) bool { return r.Final.Epoch > t.Epoch })
	return !released && slices.ContainsFunc(frozen, func(r *candidate) bool {
		return r.node == c.node && r.Stored.Epoch == t.Epoch
	})
}

// cutBorn removes the replicas that splits after the new end of the candidate's log would create.
func (p *planner) cutBorn(c *candidate) {
	for id, found := range p.found {
		p.found[id] = slices.DeleteFunc(slices.Clone(found), func(b *candidate) bool {
			return b.Born == c.Tablet && b.node == c.node && b.Stored.Epoch > c.Final.Epoch
		})
	}
}

// takenBy returns the action on the tablet into which the frozen tablet t was merged, or "" if it was
// not.
func (p *planner) takenBy(t *Tablet) string {
	if !slices.ContainsFunc(p.found[t.Tablet], func(c *candidate) bool { return c.Frozen != 0 }) {
		return ""
	}
	start := wire.StartOf(t.Descriptor.TabletDescriptor)
	for _, other := range p.plan.Tablets {
		if wire.Holds(other.Descriptor.TabletDescriptor, start) {
			return other.Action
		}
	}
	return ""
}
