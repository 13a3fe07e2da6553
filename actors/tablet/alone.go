package tablet

import "sync/atomic"

// Alone is where a tablet that is its group's only voter says that it leads, and with
// which mark of the oracle's. Reading it is what a ReadIndex of a single voter is: raft
// answers that one from its own state, without asking anybody, since no other replica can
// be elected without this one's vote. So a tablet with more voters says nothing here, and
// takes back what it has said before it applies a change that gives it some. The zero
// value says nothing.
type Alone struct{ leads atomic.Pointer[leadership] }

// leadership is immutable.
type leadership struct{ term, mark uint64 }

// Confirmed returns the term that the tablet leads in now, and the mark; ok is false if
// it has not said that it leads.
func (a *Alone) Confirmed() (term, mark uint64, ok bool) {
	l := a.leads.Load()
	if l == nil {
		return 0, 0, false
	}
	return l.term, l.mark, true
}

// publishLeadership tells the oracle what has become of leadership and mark.
func (t *Tablet) publishLeadership() {
	if t.cfg.Alone == nil {
		return
	}
	if !t.leading || t.failed != nil || !t.group.Single() {
		t.cfg.Alone.leads.Store(nil)
		return
	}
	if l := t.cfg.Alone.leads.Load(); l == nil || l.term != t.group.Term() || l.mark != t.mark {
		t.cfg.Alone.leads.Store(&leadership{term: t.group.Term(), mark: t.mark})
	}
}
