package mvcc_test

import (
	"slices"
	"strconv"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// statusOf returns the status request for a lock's transaction.
func (h *history) statusOf(l mvcc.LockInfo, dead bool) mvcc.CheckTxnStatusRequest {
	return mvcc.CheckTxnStatusRequest{
		Primary: l.Lock.Primary, StartTS: l.Lock.StartTS, Now: h.now, MetExpiry: l.Lock.Expiry,
		WorkerDead: dead,
	}
}

// resolution returns the resolution of the lock by the answer.
func resolution(l mvcc.LockInfo, res mvcc.Result) (mvcc.ResolveLockRequest, bool) {
	r := mvcc.ResolveLockRequest{StartTS: l.Lock.StartTS, CommitTS: res.CommitTS, Cells: []mvcc.Cell{l.Cell}}
	if l.Intent {
		r.Cells, r.Intents = nil, r.Cells
	}
	return r, res.Status == mvcc.StatusCommitted || res.Status == mvcc.StatusRolledBack
}

// resolve does what a reader or writer does that encounters a lock: messages to the primary and
// back to the lock (§2.2). Sometimes it wrongly believes the worker dead, which must be harmless
// (the primary decides).
func (h *history) resolve(l mvcc.LockInfo) {
	dead := h.chance(15)
	h.send(tabletOf(l.Lock.Primary), h.statusOf(l, dead), func(res mvcc.Result) {
		if asksCells(res) {
			expired := dead || h.now >= res.Locks[0].Lock.Expiry
			h.askCells(h.model.txns[l.Lock.StartTS], !expired, true, nil)
			return
		}
		if r, decided := resolution(l, res); decided {
			h.seen.Resolved++
			h.send(tabletOf(l.Cell), r, nil)
		}
	})
}

// asksCells reports whether the answer of the primary leaves the decision to all cells.
func asksCells(res mvcc.Result) bool {
	return res.Status == mvcc.StatusLive && len(res.Locks) > 0 && res.Locks[0].Lock.MinCommitTS != 0
}

// notify starts a transaction that only notifies.
func (h *history) notify() {
	ts := h.tick()
	h.model.direct[ts] = true
	c := parseCell([]string{"a.doc", "b.doc", "c.doc", "d.doc"}[h.rng.IntN(4)])
	h.send(tabletOf(c), mvcc.NotifyRequest{TS: ts, Cells: []mvcc.Cell{c}}, nil)
}

// observe is a scanner that finds a dirty cell and runs its observer (§2.4).
func (h *history) observe() {
	view := h.tablets[h.rng.IntN(2)]
	for c, n := range view.Notifications() {
		if !h.chance(50) {
			continue
		}
		if h.chance(15) {
			h.send(tabletOf(c), mvcc.FailNotifyRequest{
				Cell: c, TS: n.TS, Attempts: n.Attempts + 1, ParkedTS: h.now,
			}, nil)
			return
		}
		start, observed := h.tick(), observedCell(view, c)
		if view.Observed(c.Table, observed.Column).How == mvcc.ObservedWeak {
			h.clear(c, start)
			return
		}
		h.observeStrong(c, observed, start)
		return
	}
}

// observedCell returns the observed cell of a notify cell.
func observedCell(view mvcc.View, c mvcc.Cell) mvcc.Cell {
	if w, known := view.AckOf(c.Table, c.Column); known && c.IsAck() {
		return w.ObservedCell(c)
	}
	return c
}

// notifyCells returns the notify cells of an observed cell's observers.
func notifyCells(view mvcc.View, c mvcc.Cell) (cells []mvcc.Cell) {
	how := view.Observed(c.Table, c.Column)
	if how.Plain {
		cells = append(cells, c)
	}
	for _, name := range how.Own {
		cells = append(cells, mvcc.Cell{Table: c.Table, Row: c.Row, Class: mvcc.ClassAck, Column: name})
	}
	return cells
}

// observeStrong runs the transaction of the strong observer with the notify cell c: it reads the
// observed cell and its acknowledgment and, if the cell has changed since, writes the
// acknowledgment and commits. It clears the notification with the commit, after it, or if the cell
// is clean.
func (h *history) observeStrong(c, observed mvcc.Cell, start mvcc.Timestamp) {
	ack := c
	if !c.IsAck() {
		ack = mvcc.Cell{Table: c.Table, Row: c.Row, Class: mvcc.ClassAck, Column: "observer"}
	}
	changed, ok := h.readCell(observed, start)
	if !ok {
		return
	}
	acked, ok := h.readCell(ack, start)
	if !ok {
		return
	}
	last, _ := strconv.ParseUint(string(acked.Value), 10, 64)
	if changed.CommitTS <= mvcc.Timestamp(last) {
		h.clear(c, start)
		return
	}
	t := &modelTxn{start: start, observed: c, seen: changed.CommitTS, clears: h.chance(50)}
	t.writes = []mvcc.CellWriteRequest{
		{Cell: ack, Kind: mvcc.KindPut, Value: strconv.AppendUint(nil, uint64(start), 10)},
	}
	if h.chance(50) {
		out := dataCells()[h.rng.IntN(8)]
		t.writes = append(t.writes, mvcc.CellWriteRequest{
			Cell: out, Kind: mvcc.KindPut, Value: []byte("out"),
		})
	}
	if h.chance(30) {
		slices.Reverse(t.writes)
	}
	h.start(t, func() {
		if !t.clears {
			h.clear(c, start)
		}
	})
}

// clear sends the request that clears a notification.
func (h *history) clear(c mvcc.Cell, upTo mvcc.Timestamp) {
	h.model.cleared[c] = max(h.model.cleared[c], upTo)
	h.send(tabletOf(c), mvcc.ClearNotifyRequest{Cell: c, UpTo: upTo}, nil)
}
