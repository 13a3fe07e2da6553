package mvcc_test

import (
	"maps"
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// asyncPrewrite is a prewrite of an asynchronous commit. The tablet reserves the cells, gets a
// timestamp, and then evaluates it.
type asyncPrewrite struct{ mvcc.PrewriteRequest }

// mayBeAsync reports whether the transaction may commit asynchronously.
func (t *modelTxn) mayBeAsync() bool {
	return len(t.intents) == 0 && len(t.writes) > 1 &&
		!slices.ContainsFunc(t.writes, func(w mvcc.CellWriteRequest) bool { return w.Kind == mvcc.KindLock })
}

// prewriteAsync returns the prewrite of one tablet's part.
func (c *coordinator) prewriteAsync(r mvcc.PrewriteRequest) asyncPrewrite {
	for _, w := range r.Writes {
		if w.Cell != c.txn.primary {
			continue
		}
		for _, other := range c.txn.writes {
			if other.Cell != c.txn.primary {
				r.Secondaries = append(r.Secondaries, other.Cell)
			}
		}
	}
	return asyncPrewrite{r}
}

// prewrittenAsync handles the answer of one tablet. The last one leads to the knowledge that the
// transaction is committed.
func (c *coordinator) prewrittenAsync(tablet int, res mvcc.Result) {
	switch {
	case c.done:
	case res.Status == mvcc.StatusOK:
		delete(c.waiting, tablet)
		c.least = max(c.least, res.MinCommitTS)
		if len(c.waiting) == 0 {
			c.known(c.least)
		}
	case res.Status == mvcc.StatusCommitted:
		c.known(res.CommitTS)
	case res.Status == mvcc.StatusLocked && c.h.chance(50):
		for _, l := range res.Locks {
			c.h.resolve(l)
		}
	default:
		c.done = true
		c.h.logf("txn %d gives up", c.txn.start)
		c.h.askCells(c.txn, false, c.h.chance(50), func(commitTS mvcc.Timestamp) {
			c.done = false
			c.known(commitTS)
		})
	}
}

// known is the moment at which the coordinator answers its caller.
func (c *coordinator) known(commitTS mvcc.Timestamp) {
	c.h.check(c.h.model.committed(c.txn.start, commitTS))
	c.settled(mvcc.Result{CommitTS: commitTS})
}

// cellsAnswer collects the answers of all cells of an asynchronous commit.
type cellsAnswer struct {
	waiting          map[int]bool
	rolledBack, open bool
	commitTS, least  mvcc.Timestamp
}

// add adds the answer of one tablet and returns the decision, if it is known.
func (a *cellsAnswer) add(tablet int, res mvcc.Result) (commitTS mvcc.Timestamp, decided bool) {
	delete(a.waiting, tablet)
	switch res.Status {
	case mvcc.StatusOK, mvcc.StatusRolledBack:
		a.rolledBack = true
	case mvcc.StatusCommitted:
		a.commitTS = res.CommitTS
	case mvcc.StatusLive:
		a.least = max(a.least, res.MinCommitTS)
	default:
		a.open = true
	}
	switch {
	case a.rolledBack, a.commitTS != 0:
		return a.commitTS, true
	case len(a.waiting) > 0 || a.open:
		return 0, false
	}
	return a.least, true
}

// askCells sends the requests that decide an asynchronous commit, or only ask, to all of its cells.
// If committed is not nil it is called once the transaction turns out to have committed.
func (h *history) askCells(t *modelTxn, ask, apply bool, committed func(mvcc.Timestamp)) {
	a := &cellsAnswer{waiting: map[int]bool{}}
	for _, w := range t.writes {
		a.waiting[tabletOf(w.Cell)] = true
	}
	for _, tablet := range slices.Sorted(maps.Keys(a.waiting)) {
		h.send(tablet, t.rollbackIn(tablet, ask), func(res mvcc.Result) {
			commitTS, decided := a.add(tablet, res)
			if !decided {
				return
			}
			h.seen.Decided++
			if commitTS != 0 {
				h.check(h.model.committed(t.start, commitTS))
			}
			if commitTS != 0 && committed != nil {
				committed(commitTS)
			}
			if apply {
				h.applyDecision(t, commitTS)
			}
		})
	}
}

// rollbackIn returns the request for the cells in one tablet.
func (t *modelTxn) rollbackIn(tablet int, ask bool) mvcc.RollbackRequest {
	r := mvcc.RollbackRequest{StartTS: t.start, Ask: ask}
	for _, w := range t.writes {
		if tabletOf(w.Cell) == tablet {
			r.Cells = append(r.Cells, w.Cell)
		}
	}
	return r
}

// applyDecision resolves some of the cells.
func (h *history) applyDecision(t *modelTxn, commitTS mvcc.Timestamp) {
	for _, w := range t.writes {
		if h.chance(70) {
			h.send(tabletOf(w.Cell), mvcc.ResolveLockRequest{
				StartTS: t.start, CommitTS: commitTS, Cells: []mvcc.Cell{w.Cell},
			}, nil)
		}
	}
}

// decideNow decides an asynchronous commit without messages, which could be lost.
func (h *history) decideNow(t *modelTxn) (commitTS mvcc.Timestamp, decided bool) {
	a := &cellsAnswer{waiting: map[int]bool{}}
	for _, w := range t.writes {
		a.waiting[tabletOf(w.Cell)] = true
	}
	for _, tablet := range slices.Sorted(maps.Keys(a.waiting)) {
		if res, ok := h.evaluate(message{tablet: tablet, op: t.rollbackIn(tablet, false)}); ok {
			commitTS, decided = a.add(tablet, res)
		}
	}
	return commitTS, decided
}

// async is the first turn of a prewrite of an asynchronous commit: check, reserve.
func (h *history) async(m message, r asyncPrewrite) (mvcc.Result, bool) {
	view := h.tablets[m.tablet]
	for _, f := range h.inflight {
		if f.tablet == m.tablet && f.req.StartTS == r.StartTS { // it waits
			h.queue = append(h.queue, m)
			return mvcc.Result{}, false
		}
	}
	r.MinCommitTS = mvcc.MaxTimestamp
	res, list, err := apply(view, r.PrewriteRequest)
	h.logf("tablet %d: check %+v = %s", m.tablet, r, statusName(res.Status))
	switch {
	case err != nil:
		h.check(faultf(assertNoError, "%+v: %v", r, err))
		return res, true
	case waits(res):
		h.queue = append(h.queue, m)
		return res, false
	case res.Status != mvcc.StatusOK || len(list) == 0:
		h.answered(r.PrewriteRequest, res)
		return res, true
	}
	f := &reservation{tablet: m.tablet, reply: m.reply, prewrite: &r.PrewriteRequest}
	f.req.StartTS, f.req.Writes = r.StartTS, r.Writes
	for _, w := range r.Writes {
		if l, locked := view.Lock(w.Cell); !locked || l.StartTS != r.StartTS {
			view.PutLock(w.Cell, mvcc.Lock{StartTS: r.StartTS, Primary: r.Primary, Token: uint64(r.StartTS), Kind: w.Kind})
		}
	}
	h.inflight = append(h.inflight, f)
	return res, false
}

// proceedAsync is the last turn: the locks exist, unless a new leader has dropped them.
func (h *history) proceedAsync(f *reservation, lost bool) {
	view := h.tablets[f.tablet]
	r := *f.prewrite
	r.MinCommitTS = f.commitTS
	res, list, err := apply(view, r)
	if err != nil {
		h.check(faultf(assertNoError, "%+v: %v", r, err))
	}
	h.logf("tablet %d: async prewrite of %d at %d = %s, lost %t", f.tablet, r.StartTS, f.commitTS,
		statusName(res.Status), lost)
	for _, w := range r.Writes {
		if l, locked := view.Lock(w.Cell); locked && l.Token == uint64(r.StartTS) {
			view.DropLock(w.Cell)
		}
	}
	if lost {
		return
	}
	h.effect(f.tablet, list)
	h.seen.Async++
	if f.reply != nil && h.chance(90) {
		f.reply(res)
	}
}

// locked follows a lock of an asynchronous commit: the last one commits the transaction.
func (m *model) locked(mu *mvcc.Mutation) *fault {
	t := m.txns[mu.Lock.StartTS]
	if least, there := t.least[mu.Cell]; there && least != mu.Lock.MinCommitTS {
		return faultf(assertOneTS, "%s: the lock of transaction %d has the timestamp %d, and had %d",
			show(mu.Cell), t.start, mu.Lock.MinCommitTS, least)
	}
	if t.least == nil {
		t.least = map[mvcc.Cell]mvcc.Timestamp{}
	}
	t.least[mu.Cell] = mu.Lock.MinCommitTS
	if len(t.least) < len(t.writes) {
		return nil
	}
	return m.commit(t, slices.Max(slices.Collect(maps.Values(t.least))))
}
