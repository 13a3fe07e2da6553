package tablet

import (
	"slices"
	"time"

	"github.com/percolator-go/percolator/internal/wire"
)

// pipeline holds what a leader has proposed and what waits to be evaluated after it. Only
// the tablet's turns touch it. The entries in flight are with the group and the writers, and
// return through apply (matched) and onApplied (visible), in order.
type pipeline struct {
	limit    int         // Config.Pipeline
	inflight []*proposal // proposed, not yet visible, in order
	matched  int         // length of inflight's prefix that was sent to the state actor
	number   uint64      // number of the last proposal
	held     []*Call     // mutations that wait for room
	taken    int         // number of calls in the last batch taken
	durable  uint64      // number of the last proposal that is in this replica's log

	delayed *proposal   // the last in flight, if it is to be passed to Raft with the next one
	timer   *time.Timer // ends the delay
}

// takeDelayed ends the delay and returns the delayed proposal, or nil.
func (p *pipeline) takeDelayed() *proposal {
	if p.delayed == nil {
		return nil
	}
	p.timer.Stop()
	delayed := p.delayed
	p.delayed = nil
	return delayed
}

// free reports whether another batch of mutations may be evaluated. A proposal that is being
// applied makes room for the next, which is evaluated and written to the log concurrently;
// at most three times limit may be in flight in all. Only that total includes steps of collection
// and entries that only finish decided transactions, which nobody awaits.
func (p *pipeline) free() bool {
	n := 0
	for i, q := range p.inflight {
		if !q.collects && !q.background && i >= p.matched {
			n++
		}
	}
	return n < p.limit && len(p.inflight) < 3*p.limit
}

// due reports whether the held mutations may be evaluated: there is room, or they may be
// evaluated early, while the previous entry is still being written. That is allowed only in
// a group with one voter (single), and once as many calls are held as went into that entry:
// waiting longer would leave the log actor idle. Fewer calls wait for more, so that batches
// do not shrink and the number of syncs does not grow.
func (p *pipeline) due(single bool) bool {
	n := len(p.inflight)
	return p.free() || (single && n == p.limit && p.matched < n && len(p.held) >= p.taken)
}

// take removes and returns the held mutations.
func (p *pipeline) take() []*Call {
	calls := p.held
	p.held, p.taken = make([]*Call, 0, len(calls)), len(calls) // as many calls may gather again
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

// match returns the command of an entry proposed by this leadership, in the given term, and
// nil for an entry of another leader. A term's entries come in the order in which its leader
// proposed them, so it is the next proposal in flight.
func (p *pipeline) match(a *applied, term uint64) *wire.Command {
	if a.term != term || p.next() == nil {
		return nil
	}
	a.proposal = p.next()
	a.proposal.mark("committed")
	p.matched++
	return a.proposal.command
}

// synced marks the proposals up to a number: this replica's log has them.
func (p *pipeline) synced(number uint64) {
	for _, q := range p.inflight {
		if q.number > p.durable && q.number <= number {
			q.mark("synced")
		}
	}
	p.durable = max(p.durable, number)
}

// visible removes q and returns true if q is the first proposal in flight. If q was lost
// before, the first one is another or there is none.
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

// unanswered returns the last proposal in flight whose callers are not answered yet, or nil.
func (p *pipeline) unanswered() *proposal {
	for _, q := range slices.Backward(p.inflight) {
		if !q.answered {
			return q
		}
	}
	return nil
}

// clear removes and returns everything in flight and held. number continues, since
// proposals' numbers are never reused.
func (p *pipeline) clear() (lost []*proposal, held []*Call) {
	lost, held = p.inflight, p.held
	p.takeDelayed()
	p.inflight, p.held, p.matched = nil, nil, 0
	return lost, held
}
