package mvcc_test

import (
	"slices"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// reservation is a one-phase commit between its two turns in the tablet.
type reservation struct {
	req      mvcc.OnePhaseRequest
	tablet   int
	commitTS mvcc.Timestamp
	reply    func(mvcc.Result)
	prewrite *mvcc.PrewriteRequest // instead, of an asynchronous commit
}

// send puts a message in flight. Some are dropped, some duplicated, some are repeated at the very
// end.
func (h *history) send(tablet int, op any, reply func(mvcc.Result)) {
	m := message{tablet: tablet, op: op, reply: reply}
	if h.chance(10) && len(h.late) < 12 {
		h.late = append(h.late, m)
	}
	if h.chance(6) {
		h.logf("dropped: %T%+v", op, op)
		return
	}
	h.queue = append(h.queue, m)
	if h.chance(12) {
		h.queue = append(h.queue, m)
	}
}

// deliver delivers one random message.
func (h *history) deliver() {
	if len(h.queue) == 0 {
		return
	}
	i := h.rng.IntN(len(h.queue))
	m := h.queue[i]
	h.queue[i] = h.queue[len(h.queue)-1]
	h.queue = h.queue[:len(h.queue)-1]
	if m.run != nil {
		m.run()
		return
	}
	res, answered := h.evaluate(m)
	if !answered {
		return
	}
	if m.reply == nil || h.chance(8) {
		return
	}
	if h.chance(70) {
		m.reply(res)
		return
	}
	h.queue = append(h.queue, message{run: func() { m.reply(res) }})
}

// evaluate runs one operation in its tablet. Operations that encounter a reservation wait: they
// return to the messages in flight.
func (h *history) evaluate(m message) (mvcc.Result, bool) {
	if r, ok := m.op.(mvcc.OnePhaseRequest); ok {
		return h.onePhase(m, r)
	}
	if r, ok := m.op.(asyncPrewrite); ok {
		return h.async(m, r)
	}
	res, list, err := apply(h.tablets[m.tablet], m.op)
	h.logf("tablet %d: %T%+v = %s commit=%d, %d effects", m.tablet, m.op, m.op,
		statusName(res.Status), res.CommitTS, len(list))
	if err != nil {
		h.check(faultf(assertNoError, "%T%+v: %v", m.op, m.op, err))
		return res, true
	}
	if waits(res) {
		h.queue = append(h.queue, m)
		return res, false
	}
	h.effect(m.tablet, list)
	h.answered(m.op, res)
	return res, true
}

// apply evaluates an operation by its type.
func apply(v mvcc.View, op any) (mvcc.Result, []mvcc.Mutation, error) {
	switch r := op.(type) {
	case mvcc.PrewriteRequest:
		lim := mvcc.DefaultLimits()
		lim.Inline = 4 // some values are long
		return mvcc.Prewrite(v, r, lim)
	case mvcc.CommitRequest:
		return mvcc.Commit(v, r)
	case mvcc.RollbackRequest:
		return mvcc.Rollback(v, r)
	case mvcc.CheckTxnStatusRequest:
		return mvcc.CheckTxnStatus(v, r)
	case mvcc.ResolveLockRequest:
		return mvcc.ResolveLock(v, r)
	case mvcc.HeartbeatRequest:
		return mvcc.Heartbeat(v, r)
	case mvcc.NotifyRequest:
		return mvcc.NotifyCells(v, r)
	case mvcc.ClearNotifyRequest:
		return mvcc.ClearNotify(v, r)
	case mvcc.FailNotifyRequest:
		return mvcc.FailNotify(v, r)
	}
	panic("unknown operation")
}

// waits reports whether the tablet would delay the answer because of a reservation.
func waits(res mvcc.Result) bool {
	return res.Status == mvcc.StatusLocked && slices.ContainsFunc(res.Locks, func(l mvcc.LockInfo) bool {
		return l.Lock.Token != 0
	})
}

// effect applies mutations and shows them to the model.
func (h *history) effect(tablet int, list []mvcc.Mutation) {
	h.check(h.model.mutated(h.tablets[tablet], list))
	h.garbage[tablet] = mvcc.GarbageOf(h.garbage[tablet], list)
	h.tablets[tablet].Apply(list)
}

// answered checks an answer's guarantees.
func (h *history) answered(op any, res mvcc.Result) {
	switch res.Status {
	case mvcc.StatusConflict:
		h.seen.Conflicts++
	case mvcc.StatusTooOld:
		h.seen.TooOld++
	case mvcc.StatusUnknown:
		h.seen.Unknown++
	}
	switch r := op.(type) {
	case mvcc.PrewriteRequest:
		if res.Status == mvcc.StatusCommitted {
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		}
	case mvcc.CommitRequest:
		switch {
		case res.Status == mvcc.StatusOK && len(r.Cells) > 0:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case res.Status == mvcc.StatusNotFound:
			// The commit was sent after every prewrite had been answered.
			h.check(faultf(assertKnown, "commit of transaction %d finds neither lock nor record",
				r.StartTS))
		}
	case mvcc.RollbackRequest:
		primary := h.model.txns[r.StartTS].primary
		switch {
		case h.model.txns[r.StartTS].async && (res.Status == mvcc.StatusOK || res.Status == mvcc.StatusRolledBack):
			h.check(h.model.rollback(r.StartTS))
		case res.Status == mvcc.StatusCommitted:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case res.Status == mvcc.StatusOK && slices.Contains(r.Cells, primary):
			h.check(h.model.rollback(r.StartTS))
		}
	case mvcc.CheckTxnStatusRequest:
		switch res.Status {
		case mvcc.StatusCommitted:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case mvcc.StatusRolledBack:
			h.check(h.model.rollback(r.StartTS))
		}
	case mvcc.NotifyRequest:
		for _, c := range r.Cells {
			h.model.notified[c] = max(h.model.notified[c], r.TS)
		}
	}
}

// onePhase is the first turn of a one-phase commit: check, reserve.
func (h *history) onePhase(m message, r mvcc.OnePhaseRequest) (mvcc.Result, bool) {
	view := h.tablets[m.tablet]
	res, err := mvcc.CheckOnePhase(view, r)
	h.logf("tablet %d: check %+v = %s commit=%d", m.tablet, r, statusName(res.Status), res.CommitTS)
	switch {
	case err != nil:
		h.check(faultf(assertNoError, "%+v: %v", r, err))
		return res, true
	case waits(res):
		h.queue = append(h.queue, m)
		return res, false
	case res.Status == mvcc.StatusCommitted:
		h.check(h.model.committed(r.StartTS, res.CommitTS))
	case res.Status == mvcc.StatusRolledBack, res.Status == mvcc.StatusConflict, res.Status == mvcc.StatusTooOld:
		h.answered(nil, res)
		h.check(h.model.rollback(r.StartTS))
	case res.Status == mvcc.StatusUnknown:
		h.answered(nil, res)
	case res.Status == mvcc.StatusOK:
		for _, w := range r.Writes {
			view.PutLock(w.Cell, mvcc.Lock{
				StartTS: r.StartTS, Primary: r.Writes[0].Cell, Token: uint64(r.StartTS),
				Kind: w.Kind,
			})
		}
		h.inflight = append(h.inflight, &reservation{req: r, tablet: m.tablet, reply: m.reply})
		return res, false
	}
	return res, true
}

// proceed advances one reserved one-phase commit by a turn: the oracle's answer, then the effects.
// Sometimes a new leader drops it.
func (h *history) proceed() {
	if len(h.inflight) == 0 {
		return
	}
	i := h.rng.IntN(len(h.inflight))
	f := h.inflight[i]
	view := h.tablets[f.tablet]
	if f.commitTS == 0 {
		f.commitTS = h.tick()
		for _, w := range f.req.Writes {
			l, _ := view.Lock(w.Cell)
			if l.Token == 0 { // an earlier prewrite of this transaction
				continue
			}
			l.CommitTS = f.commitTS
			view.PutLock(w.Cell, l)
		}
		return
	}
	h.inflight = slices.Delete(h.inflight, i, i+1)
	lost := h.chance(10)
	if f.prewrite != nil {
		h.proceedAsync(f, lost)
		return
	}
	if !lost {
		lim := mvcc.DefaultLimits()
		lim.Inline = 4
		res, list, err := mvcc.OnePhaseCommit(view, f.req, f.commitTS, lim)
		if err != nil || res.Status != mvcc.StatusOK {
			h.check(faultf(assertNoError, "one-phase commit of %d at %d: %s, %v", f.req.StartTS,
				f.commitTS, statusName(res.Status), err))
		}
		h.effect(f.tablet, list)
		h.seen.OnePhase++
	}
	h.logf("tablet %d: one-phase commit of %d at %d, lost %t", f.tablet, f.req.StartTS, f.commitTS,
		lost)
	for _, w := range f.req.Writes {
		view.DropLock(w.Cell)
	}
	if !lost && f.reply != nil && h.chance(90) {
		f.reply(mvcc.Result{CommitTS: f.commitTS})
	}
}

// drain delivers messages in flight, up to a number; the rest is lost.
func (h *history) drain(limit int) {
	for range limit {
		if h.fault != nil || (len(h.queue) == 0 && len(h.inflight) == 0) {
			break
		}
		h.deliver()
		h.proceed()
	}
	for len(h.inflight) > 0 && h.fault == nil {
		h.proceed()
	}
	h.queue = nil
}

// resolveAll resolves every lock and intent after its expiry, as scanners do.
func (h *history) resolveAll() {
	h.now += 1000
	for range 10 {
		left := h.undecided(mvcc.MaxTimestamp)
		if len(left) == 0 || h.fault != nil {
			return
		}
		for _, l := range left {
			h.resolveNow(l)
		}
	}
	h.check(faultf(assertResolvable, "locks are left: %+v", h.undecided(mvcc.MaxTimestamp)))
}

// undecided lists the locks and intents of transactions that began below a timestamp.
func (h *history) undecided(below mvcc.Timestamp) []mvcc.LockInfo {
	var list []mvcc.LockInfo
	for _, view := range h.tablets {
		for c, l := range view.Locks(wholeTable, false) {
			if l.StartTS < below {
				list = append(list, mvcc.LockInfo{Cell: c, Lock: l})
			}
		}
		for _, i := range view.AllIntents() {
			if i.StartTS < below {
				lock := mvcc.Lock{
					StartTS: i.StartTS, Primary: i.Intent.Primary, Expiry: i.Intent.Expiry,
					Worker: i.Intent.Worker,
				}
				list = append(list, mvcc.LockInfo{Cell: i.Cell, Intent: true, Lock: lock})
			}
		}
	}
	return list
}

// resolveNow resolves one lock or intent without messages, which could be lost.
func (h *history) resolveNow(l mvcc.LockInfo) {
	res, ok := h.evaluate(message{tablet: tabletOf(l.Lock.Primary), op: h.statusOf(l, true)})
	if ok {
		if asksCells(res) {
			res.CommitTS, ok = h.decideNow(h.model.txns[l.Lock.StartTS])
			if !ok {
				return
			}
			res.Status = mvcc.StatusCommitted
		}
		if r, decided := resolution(l, res); decided {
			h.evaluate(message{tablet: tabletOf(l.Cell), op: r})
			h.seen.Resolved++
		}
	}
}
