package mvcc

import (
	"slices"
)

// reservation is a one-phase commit between its two turns in the tablet (invariant 10).
type reservation struct {
	req      OnePhaseRequest
	tablet   int
	commitTS Timestamp
	reply    func(Result)
}

// send puts a message under way. Some are dropped, some doubled, some come again at the very end.
func (h *history) send(tablet int, op any, reply func(Result)) {
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

// deliver lets one message arrive, whichever.
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

// evaluate runs one operation in its tablet. Operations that meet a reservation wait:
// they go back under way.
func (h *history) evaluate(m message) (Result, bool) {
	if r, ok := m.op.(OnePhaseRequest); ok {
		return h.onePhase(m, r)
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
func apply(v View, op any) (Result, []Mutation, error) {
	switch r := op.(type) {
	case PrewriteRequest:
		lim := DefaultLimits()
		lim.Inline = 4 // some values are long
		return Prewrite(v, r, lim)
	case CommitRequest:
		return Commit(v, r)
	case RollbackRequest:
		return Rollback(v, r)
	case CheckTxnStatusRequest:
		return CheckTxnStatus(v, r)
	case ResolveLockRequest:
		return ResolveLock(v, r)
	case HeartbeatRequest:
		return Heartbeat(v, r)
	case NotifyRequest:
		return NotifyCells(v, r)
	case ClearNotifyRequest:
		return ClearNotify(v, r)
	case FailNotifyRequest:
		return FailNotify(v, r)
	}
	panic("unknown operation")
}

// waits reports whether the tablet would hold the answer back because of a reservation.
func waits(res Result) bool {
	return res.Status == StatusLocked && slices.ContainsFunc(res.Locks, func(l LockInfo) bool {
		return l.Lock.Token != 0
	})
}

// effect applies mutations under the eyes of the model.
func (h *history) effect(tablet int, list []Mutation) {
	h.check(h.model.mutated(h.tablets[tablet], list))
	h.garbage[tablet] = GarbageOf(h.garbage[tablet], list)
	h.tablets[tablet].Apply(list)
}

// answered checks what an answer promises.
func (h *history) answered(op any, res Result) {
	switch res.Status {
	case StatusConflict:
		h.seen.Conflicts++
	case StatusTooOld:
		h.seen.TooOld++
	case StatusUnknown:
		h.seen.Unknown++
	}
	switch r := op.(type) {
	case PrewriteRequest:
		if res.Status == StatusCommitted {
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		}
	case CommitRequest:
		switch {
		case res.Status == StatusOK && len(r.Cells) > 0:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case res.Status == StatusNotFound:
			// It was sent after every prewrite had been answered.
			h.check(faultf(assertKnown, "commit of transaction %d finds neither lock nor record",
				r.StartTS))
		}
	case RollbackRequest:
		primary := h.model.txns[r.StartTS].primary
		switch {
		case res.Status == StatusCommitted:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case res.Status == StatusOK && slices.Contains(r.Cells, primary):
			h.check(h.model.rollback(r.StartTS))
		}
	case CheckTxnStatusRequest:
		switch res.Status {
		case StatusCommitted:
			h.check(h.model.committed(r.StartTS, res.CommitTS))
		case StatusRolledBack:
			h.check(h.model.rollback(r.StartTS))
		}
	case NotifyRequest:
		for _, c := range r.Cells {
			h.model.notified[c] = max(h.model.notified[c], r.TS)
		}
	}
}

// onePhase is the first turn of a one-phase commit: check, reserve.
func (h *history) onePhase(m message, r OnePhaseRequest) (Result, bool) {
	view := h.tablets[m.tablet]
	res, err := CheckOnePhase(view, r)
	h.logf("tablet %d: check %+v = %s commit=%d", m.tablet, r, statusName(res.Status), res.CommitTS)
	switch {
	case err != nil:
		h.check(faultf(assertNoError, "%+v: %v", r, err))
		return res, true
	case waits(res):
		h.queue = append(h.queue, m)
		return res, false
	case res.Status == StatusCommitted:
		h.check(h.model.committed(r.StartTS, res.CommitTS))
	case res.Status == StatusRolledBack, res.Status == StatusConflict, res.Status == StatusTooOld:
		h.answered(nil, res)
		h.check(h.model.rollback(r.StartTS))
	case res.Status == StatusUnknown:
		h.answered(nil, res)
	case res.Status == StatusOK:
		for _, w := range r.Writes {
			view.PutLock(w.Cell, Lock{
				StartTS: r.StartTS, Primary: r.Writes[0].Cell, Token: uint64(r.StartTS),
			})
		}
		h.inflight = append(h.inflight, &reservation{req: r, tablet: m.tablet, reply: m.reply})
		return res, false
	}
	return res, true
}

// proceed takes one reserved one-phase commit a turn further: the oracle's answer, then
// the effects. Sometimes a new leader drops it.
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
			l.CommitTS = f.commitTS
			view.PutLock(w.Cell, l)
		}
		return
	}
	h.inflight = slices.Delete(h.inflight, i, i+1)
	lost := h.chance(10)
	if !lost {
		lim := DefaultLimits()
		lim.Inline = 4
		res, list, err := OnePhaseCommit(view, f.req, f.commitTS, lim)
		if err != nil || res.Status != StatusOK {
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
		f.reply(Result{CommitTS: f.commitTS})
	}
}

// drain lets what is under way arrive, up to a number of messages; what is left then is lost.
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
		left := h.undecided(MaxTimestamp)
		if len(left) == 0 || h.fault != nil {
			return
		}
		for _, l := range left {
			h.resolveNow(l)
		}
	}
	h.check(faultf(assertResolvable, "locks are left: %+v", h.undecided(MaxTimestamp)))
}

// undecided lists the locks and intents of transactions that began below a timestamp.
func (h *history) undecided(below Timestamp) []LockInfo {
	var list []LockInfo
	for _, view := range h.tablets {
		for _, e := range view.groups[GroupLock] {
			if e.Lock.StartTS < below {
				list = append(list, LockInfo{Cell: e.Cell, Lock: *e.Lock})
			}
		}
		for _, i := range view.AllIntents() {
			if i.StartTS < below {
				lock := Lock{
					StartTS: i.StartTS, Primary: i.Intent.Primary, Expiry: i.Intent.Expiry,
					Worker: i.Intent.Worker,
				}
				list = append(list, LockInfo{Cell: i.Cell, Intent: true, Lock: lock})
			}
		}
	}
	return list
}

// resolveNow resolves one lock or intent without messages that could be lost.
func (h *history) resolveNow(l LockInfo) {
	res, ok := h.evaluate(message{tablet: tabletOf(l.Lock.Primary), op: h.statusOf(l, true)})
	if ok {
		if r, decided := resolution(l, res); decided {
			h.evaluate(message{tablet: tabletOf(l.Cell), op: r})
			h.seen.Resolved++
		}
	}
}
