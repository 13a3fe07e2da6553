package tablet

import (
	"slices"

	"github.com/percolator-go/percolator/internal/wire"
)

// pipeline is what a leader has proposed and what waits to be evaluated behind it. Only
// the tablet's turns touch it. The entries of what is in flight are with the group and
// the writers meanwhile, and come back through apply (matched) and onApplied (visible),
// in order.
type pipeline struct {
	limit    int         // Config.Pipeline
	inflight []*proposal // proposed, not yet visible, in order
	matched  int         // of them, that are handed on to be applied
	number   uint64      // of the last proposal
	held     []*Call     // mutations that wait for room
	taken    int         // how many were taken on last
}

// free reports whether another batch of mutations may be evaluated. A proposal that is
// being applied leaves its place to the next, which is evaluated and written to the log
// meanwhile, but at most three times limit may be in flight in all. A step of collection
// does not take a place.
func (p *pipeline) free() bool {
	n := 0
	for i, q := range p.inflight {
		if !q.collects && i >= p.matched {
			n++
		}
	}
	return n < p.limit && len(p.inflight) < 3*p.limit
}

// due reports whether what is held may be evaluated: there is room, or it may go early,
// while the entry before it is still being written. It goes early only in a group with
// one voter (single), and once it is as many calls as went into that entry: waiting
// longer would leave the log actor idle. Fewer calls gather further, so that batches do
// not shrink and syncs do not grow in number.
func (p *pipeline) due(single bool) bool {
	n := len(p.inflight)
	return p.free() || (single && n == p.limit && p.matched < n && len(p.held) >= p.taken)
}

// take removes what is held and returns it.
func (p *pipeline) take() []*Call {
	calls := p.held
	p.held, p.taken = make([]*Call, 0, len(calls)), len(calls) // as many will gather again
	return calls
}

// next returns the proposal of the next entry to be applied, or nil if nothing unmatched
// is in flight.
func (p *pipeline) next() *proposal {
	if p.matched >= len(p.inflight) {
		return nil
	}
	return p.inflight[p.matched]
}

// match returns the command of an entry that this leadership, of the term, has proposed, and
// nil for one of another leader's. The entries of a term come in the order in which its
// leader proposed them, so the next proposal in flight is the one.
func (p *pipeline) match(a *applied, term uint64) *wire.Command {
	if a.term != term || p.next() == nil {
		return nil
	}
	a.proposal = p.next()
	p.matched++
	return a.proposal.command
}

// visible removes the first proposal in flight and reports true, if it is q. It is
// another, or none, if q was given up meanwhile.
func (p *pipeline) visible(q *proposal) bool {
	if q == nil || len(p.inflight) == 0 || p.inflight[0] != q {
		return false
	}
	p.inflight = p.inflight[1:]
	p.matched--
	return true
}

// has reports whether the proposal with the number is in flight.
func (p *pipeline) has(number uint64) bool {
	return number != 0 && slices.ContainsFunc(p.inflight, func(q *proposal) bool {
		return q.number == number
	})
}

// clear gives up all that is in flight and held, and returns both. number goes on:
// proposals' numbers are not used again.
func (p *pipeline) clear() (lost []*proposal, held []*Call) {
	lost, held = p.inflight, p.held
	p.inflight, p.held, p.matched = nil, nil, 0
	return lost, held
}
