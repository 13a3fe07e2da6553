package tablet

import "slices"

// pipeline is what a leader has proposed and what waits to be evaluated behind that. It
// belongs to the tablet's turns; the entries of what is in flight are with the group and
// the writers.
type pipeline struct {
	limit    int         // Config.Pipeline
	inflight []*proposal // proposed, not yet visible, in order
	matched  int         // of them, that are handed on to be applied
	number   uint64      // of the last proposal
	held     []*Call     // mutations that wait for room
	taken    int         // how many were taken on last
}

// free reports whether another batch of mutations may be evaluated. A proposal that is
// being applied leaves its place in the pipeline to the next, which is evaluated and
// written to the log meanwhile; but no more than twice as many again may be under way. A
// step of collection alone holds nobody up.
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
// while the entry before it is being written. That is once it is as many as went into
// that, for then the log actor would only wait for it; what is fewer gathers on, so that
// batches do not get smaller and syncs more. single says that the group has one voter.
func (p *pipeline) due(single bool) bool {
	n := len(p.inflight)
	return p.free() || (single && n == p.limit && p.matched < n && len(p.held) >= p.taken)
}

// take returns what is held.
func (p *pipeline) take() []*Call {
	calls := p.held
	p.held, p.taken = nil, len(calls)
	return calls
}

// next is the proposal that the next entry to be applied is of; nil if it is another
// leader's.
func (p *pipeline) next() *proposal {
	if p.matched >= len(p.inflight) {
		return nil
	}
	return p.inflight[p.matched]
}

// visible ends the first proposal in flight; false if it is not this one, because it was
// given up meanwhile.
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

// clear gives up all that is in flight and all that is held, and returns both.
func (p *pipeline) clear() (lost []*proposal, held []*Call) {
	lost, held = p.inflight, p.held
	p.inflight, p.held, p.matched = nil, nil, 0
	return lost, held
}
