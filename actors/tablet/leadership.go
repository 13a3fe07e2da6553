package tablet

import (
	"sync/atomic"

	"github.com/percolator-go/percolator/actors/tablet/group"
)

// PublishedLeadership publishes that a tablet leads and cannot have a successor unnoticed, and the
// oracle's mark. The tablet's turns write it; the oracle on the same node reads it on its own goroutine,
// instead of sending a message. Confirmed is equivalent to a ReadIndex: the only voter of a group
// answers that from its own state, since no other replica can be elected without this one's vote,
// and a leader among several voters answers it under its lease. What was published is withdrawn
// before the tablet applies a change that adds a voter. The zero value publishes nothing.
type PublishedLeadership struct{ leads atomic.Pointer[leadership] }

// leadership is an immutable pair of a term and the mark in it; a change replaces it.
type leadership struct {
	term, mark uint64
	lease      *group.Lease // nil: the only voter needs none
}

// Confirmed returns the term in which the tablet leads now, and the mark. alone reports that it has
// the only vote; otherwise it holds a lease. ok is false if the tablet does not lead, or if only the
// other voters can confirm it. It is safe for concurrent use.
func (v *PublishedLeadership) Confirmed() (term, mark uint64, alone, ok bool) {
	l := v.leads.Load()
	if l == nil || l.lease != nil && !l.lease.Held() {
		return 0, 0, false, false
	}
	return l.term, l.mark, l.lease == nil, true
}

// withdraw resets the published state. It does nothing on a nil PublishedLeadership.
func (v *PublishedLeadership) withdraw() {
	if v != nil {
		v.leads.Store(nil)
	}
}

// publishLeadership updates Config.Leadership. It is called after every change of the leadership and
// every applied entry, and does nothing if neither term nor mark nor lease has changed.
func (t *Tablet) publishLeadership() {
	if t.cfg.Leadership == nil {
		return
	}
	now := leadership{term: t.group.Term(), mark: t.mark}
	if !t.group.Single() {
		now.lease = t.group.Lease()
	}
	if !t.leading || t.failed != nil || now.lease == nil && !t.group.Single() {
		t.cfg.Leadership.leads.Store(nil)
		return
	}
	if l := t.cfg.Leadership.leads.Load(); l == nil || *l != now {
		t.cfg.Leadership.leads.Store(&now)
	}
}
