package tablet

import "sync/atomic"

// SoleVoter publishes that a tablet leads as the only voter of its group, and the oracle's
// mark. The tablet's turns write it; the oracle on the same node reads it on its own
// goroutine, instead of sending a message. It is equivalent to a ReadIndex of a single voter,
// which raft answers from its own state, since no other replica can be elected without this
// one's vote. A tablet with more voters therefore publishes nothing, and withdraws what it
// has published before it applies a change that adds a voter. The zero value publishes
// nothing.
type SoleVoter struct{ leads atomic.Pointer[leadership] }

// leadership is an immutable pair of a term and the mark in it; a change replaces it.
type leadership struct{ term, mark uint64 }

// Confirmed returns the term in which the tablet leads now, and the mark. ok is false if the
// tablet does not lead as a single voter. It is safe for concurrent use.
func (v *SoleVoter) Confirmed() (term, mark uint64, ok bool) {
	l := v.leads.Load()
	if l == nil {
		return 0, 0, false
	}
	return l.term, l.mark, true
}

// withdraw resets the published state. It does nothing on a nil SoleVoter.
func (v *SoleVoter) withdraw() {
	if v != nil {
		v.leads.Store(nil)
	}
}

// publishLeadership updates SoleVoter. It is called after every change of the leadership and
// every applied entry, and does nothing if neither term nor mark has changed.
func (t *Tablet) publishLeadership() {
	if t.cfg.SoleVoter == nil {
		return
	}
	if !t.leading || t.failed != nil || !t.group.Single() {
		t.cfg.SoleVoter.leads.Store(nil)
		return
	}
	if l := t.cfg.SoleVoter.leads.Load(); l == nil || l.term != t.group.Term() || l.mark != t.mark {
		t.cfg.SoleVoter.leads.Store(&leadership{term: t.group.Term(), mark: t.mark})
	}
}
