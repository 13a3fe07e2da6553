package tablet

import "sync/atomic"

// Alone is where a tablet that is its group's only voter says that it leads, and with
// which mark of the oracle's. Reading it is what a ReadIndex of a single voter is: raft
// answers that one from its own state, without asking anybody, since no other replica can
// be elected without this one's vote. So a tablet with more voters says nothing here, and
// takes back what it has said before it applies a change that gives it some. The zero
// value says nothing.
type Alone struct{ said atomic.Pointer[leadership] }

// leadership is immutable.
type leadership struct{ term, mark uint64 }

// Confirmed returns the term that the tablet leads in now, and the mark; ok is false if
// it has not said that it leads.
func (a *Alone) Confirmed() (term, mark uint64, ok bool) {
	l := a.said.Load()
	if l == nil {
		return 0, 0, false
	}
	return l.term, l.mark, true
}

// sayAlone tells the oracle what has become of leadership and mark.
func (t *Tablet) sayAlone() {
	if t.cfg.Alone == nil {
		return
	}
	if !t.leading || t.failed != nil || !t.single {
		t.cfg.Alone.said.Store(nil)
		return
	}
	if l := t.cfg.Alone.said.Load(); l == nil || l.term != t.term || l.mark != t.mark {
		t.cfg.Alone.said.Store(&leadership{term: t.term, mark: t.mark})
	}
}
