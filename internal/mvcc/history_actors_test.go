package mvcc_test

import (
	"slices"
	"strconv"

	"github.com/percolator-go/percolator/internal/mvcc"
)

// coordinator is a client that commits one transaction (§2.2): in two phases, in one,
// asynchronously, or with all tablets except the primary's prewritten and that one in one phase.
type coordinator struct {
	h          *history
	txn        *modelTxn
	expiry     mvcc.Timestamp
	onePhase   bool
	last       bool         // the primary's tablet commits in one phase
	waiting    map[int]bool // tablets whose prewrite is unanswered
	committing bool
	least      mvcc.Timestamp // of an asynchronous commit: the greatest MinCommitTS
	done       bool           // decided, abandoned or crashed
	after      func()
}

// dataCells are the cells written by transactions: plain and observed ones, in both tablets.
func dataCells() []mvcc.Cell {
	return []mvcc.Cell{parseCell("a.x"), parseCell("a.body"), parseCell("b.x"), parseCell("b.body"),
		parseCell("c.x"), parseCell("c.body"), parseCell("d.x"), parseCell("d.body")}
}

// begin starts a transaction that writes a few cells and may notify some.
func (h *history) begin() {
	start := h.tick()
	cells := dataCells()
	h.rng.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	cells = cells[:1+h.rng.IntN(3)]
	if h.chance(30) {
		cells = slices.DeleteFunc(cells, func(c mvcc.Cell) bool {
			return tabletOf(c) != tabletOf(cells[0])
		})
	}
	t := &modelTxn{start: start}
	for _, c := range cells {
		if h.chance(40) {
			h.readCell(c, start)
		}
		w := mvcc.CellWriteRequest{
			Cell: c, Kind: mvcc.KindPut, Value: []byte(strconv.FormatUint(uint64(start), 10)),
		}
		if h.chance(20) {
			w.Value = append(w.Value, "-long"...)
		}
		if h.chance(15) {
			w = mvcc.CellWriteRequest{Cell: c, Kind: mvcc.KindDelete}
		}
		// The primary is a write.
		if len(t.writes) > 0 && h.chance(25) {
			w = mvcc.CellWriteRequest{Cell: c, Kind: mvcc.KindLock}
		}
		t.writes = append(t.writes, w)
	}
	if h.chance(25) {
		t.intents = append(t.intents, parseCell([]string{
			"a.doc", "b.doc", "c.doc", "d.doc",
		}[h.rng.IntN(4)]))
	}
	h.start(t, nil)
}

// start begins the commit of a transaction with given writes.
func (h *history) start(t *modelTxn, after func()) {
	t.primary = t.writes[0].Cell
	t.applied = make(map[mvcc.Cell]bool)
	h.model.txns[t.start] = t
	c := &coordinator{
		h: h, txn: t, expiry: t.start + mvcc.Timestamp(5+h.rng.IntN(60)), after: after,
		waiting: make(map[int]bool),
	}
	h.txns = append(h.txns, c)
	for _, cell := range c.cells() {
		c.waiting[tabletOf(cell)] = true
	}
	c.onePhase = len(c.waiting) == 1 && h.chance(60)
	t.async = !c.onePhase && t.mayBeAsync() && h.chance(50)
	if c.last = !t.async && len(c.waiting) > 1 && h.chance(40); c.last {
		delete(c.waiting, tabletOf(t.primary))
	}
	h.logf("begin %d: %+v", t.start, t)
	for _, tablet := range [...]int{0, 1} {
		c.prewrite(tablet)
	}
}

// cells returns all cells of the transaction, intents included.
func (c *coordinator) cells() []mvcc.Cell {
	cells := slices.Clone(c.txn.intents)
	for _, w := range c.txn.writes {
		cells = append(cells, w.Cell)
	}
	return cells
}

// prewrite sends, or resends, the prewrites of unanswered tablets.
func (c *coordinator) prewrite(tablet int) {
	if !c.waiting[tablet] {
		return
	}
	if c.onePhase {
		c.h.send(tablet, mvcc.OnePhaseRequest{
			StartTS: c.txn.start, Writes: c.txn.writes, Notifies: c.txn.intents,
			Clear: c.txn.clears,
		}, c.settled)
		return
	}
	r := mvcc.PrewriteRequest{StartTS: c.txn.start, Primary: c.txn.primary, Expiry: c.expiry}
	for _, w := range c.txn.writes {
		if tabletOf(w.Cell) == tablet {
			r.Writes = append(r.Writes, w)
		}
	}
	r.Intents = in(c.txn.intents, tablet)
	if c.txn.async {
		c.h.send(tablet, c.prewriteAsync(r), func(res mvcc.Result) { c.prewrittenAsync(tablet, res) })
		return
	}
	c.h.send(tablet, r, func(res mvcc.Result) { c.prewritten(tablet, res) })
}

// in returns the cells in one tablet.
func in(cells []mvcc.Cell, tablet int) []mvcc.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c mvcc.Cell) bool {
		return tabletOf(c) != tablet
	})
}

// prewritten handles a prewrite's answer; the last one leads to the commit of the primary.
func (c *coordinator) prewritten(tablet int, res mvcc.Result) {
	if c.done || c.committing {
		return
	}
	switch res.Status {
	case mvcc.StatusOK:
		delete(c.waiting, tablet)
	case mvcc.StatusLocked:
		if c.h.chance(50) {
			for _, l := range res.Locks {
				c.h.resolve(l)
			}
			return // the next poke resends it
		}
		c.giveUp()
	default:
		c.giveUp()
	}
	if len(c.waiting) == 0 {
		c.committing = true
		c.commitPrimary(c.h.tick())
	}
}

// commitPrimary sends the one message that decides.
func (c *coordinator) commitPrimary(ts mvcc.Timestamp) {
	cells := []mvcc.Cell{c.txn.primary}
	var intents []mvcc.Cell
	tablet := tabletOf(c.txn.primary)
	if c.last {
		r := mvcc.OnePhaseRequest{
			StartTS: c.txn.start, Notifies: in(c.txn.intents, tablet), Clear: c.txn.clears,
		}
		for _, w := range c.txn.writes {
			if tabletOf(w.Cell) == tablet {
				r.Writes = append(r.Writes, w)
			}
		}
		c.h.send(tablet, r, c.settled)
		return
	}
	if c.h.chance(70) {
		cells, intents = c.written(tablet), in(c.txn.intents, tablet)
	}
	c.h.send(tablet, mvcc.CommitRequest{
		StartTS: c.txn.start, CommitTS: ts, Cells: cells, Intents: intents, Clear: c.txn.clears,
	}, c.settled)
}

// written returns the written cells in one tablet.
func (c *coordinator) written(tablet int) []mvcc.Cell { return c.cellsOf(tablet, false) }

// cellsOf returns the cells in one tablet that are written, or locked without a write.
func (c *coordinator) cellsOf(tablet int, locked bool) []mvcc.Cell {
	var cells []mvcc.Cell
	for _, w := range c.txn.writes {
		if tabletOf(w.Cell) == tablet && (w.Kind == mvcc.KindLock) == locked {
			cells = append(cells, w.Cell)
		}
	}
	return cells
}

// settled handles the answer that contains the outcome: to the commit of the primary, a one-phase
// commit, or a rollback.
func (c *coordinator) settled(res mvcc.Result) {
	if c.done {
		return
	}
	switch {
	case res.CommitTS != 0 && (res.Status == mvcc.StatusOK || res.Status == mvcc.StatusCommitted):
		c.done = true
		c.h.logf("txn %d knows that it committed at %d", c.txn.start, res.CommitTS)
		c.secondaries(res.CommitTS)
		if c.after != nil {
			c.after()
		}
	case res.Status == mvcc.StatusLocked, res.Status == mvcc.StatusUnknown:
		// A one-phase commit encountered a lock, or the outcome is unknown: the next poke settles
		// it or leaves it.
	case res.Status == mvcc.StatusCommitTSTooLow:
		c.commitPrimary(c.h.tick())
	default:
		c.giveUp()
	}
}

// secondaries commits the remaining cells, in the background.
func (c *coordinator) secondaries(ts mvcc.Timestamp) {
	if c.onePhase || c.h.chance(15) {
		return
	}
	for _, tablet := range [...]int{0, 1} {
		r := mvcc.CommitRequest{
			StartTS: c.txn.start, CommitTS: ts, Cells: c.written(tablet),
			Intents: in(c.txn.intents, tablet), Clear: c.txn.clears,
		}
		if len(r.Cells)+len(r.Intents) > 0 {
			c.h.send(tablet, r, nil)
		}
		if locks := c.cellsOf(tablet, true); len(locks) > 0 {
			c.h.send(tablet, mvcc.ResolveLockRequest{StartTS: c.txn.start, CommitTS: ts, Cells: locks}, nil)
		}
	}
}

// giveUp rolls back all cells. Before the primary's commit was sent, any order is safe.
func (c *coordinator) giveUp() {
	c.done = true
	c.h.logf("txn %d gives up", c.txn.start)
	for _, tablet := range [...]int{0, 1} {
		r := mvcc.RollbackRequest{
			StartTS: c.txn.start, Intents: in(c.txn.intents, tablet),
			Cells: append(c.written(tablet), c.cellsOf(tablet, true)...),
		}
		if !c.onePhase && len(r.Cells)+len(r.Intents) > 0 {
			c.h.send(tablet, r, nil)
		}
	}
}

// poke is a coordinator's time-out: it resends, requests a later commit timestamp, settles, or
// extends its lock.
func (h *history) poke() {
	if len(h.txns) == 0 {
		return
	}
	c := h.txns[h.rng.IntN(len(h.txns))]
	if c.done {
		return
	}
	settle := mvcc.RollbackRequest{StartTS: c.txn.start, Cells: []mvcc.Cell{c.txn.primary}}
	switch n := h.rng.IntN(4); {
	case c.onePhase && n < 2, c.committing && n == 0:
		h.send(tabletOf(c.txn.primary), settle, c.settled)
	case c.committing:
		h.now += mvcc.Timestamp(n)
		c.commitPrimary(h.tick())
	case n == 3:
		h.send(tabletOf(c.txn.primary), mvcc.HeartbeatRequest{
			Primary: c.txn.primary, StartTS: c.txn.start, Expiry: h.now + 20,
		}, nil)
	default:
		c.prewrite(0)
		c.prewrite(1)
	}
}

// crash ends a coordinator without a message.
func (h *history) crash() {
	if len(h.txns) > 0 {
		c := h.txns[h.rng.IntN(len(h.txns))]
		c.done = true
		h.logf("coordinator of %d crashes", c.txn.start)
	}
}

// read reads a cell, or scans a tablet, at a timestamp granted now or some time ago.
func (h *history) read() {
	at := h.tick()
	if h.chance(30) {
		at -= mvcc.Timestamp(h.rng.IntN(int(min(at-1, 40))))
	}
	cells := dataCells()
	if h.chance(60) {
		h.readCell(cells[h.rng.IntN(len(cells))], at)
		return
	}
	h.scan(h.rng.IntN(2), at)
}

// readCell reads one cell and resolves the locks that it encounters. The model checks the result at
// the end.
func (h *history) readCell(c mvcc.Cell, at mvcc.Timestamp) (mvcc.ReadResult, bool) {
	res, err := mvcc.Get(h.viewOf(c), c, at)
	h.logf("get %s at %d: %s", show(c), at, showRead(res, err))
	switch {
	case err != nil:
		h.check(faultf(assertNoError, "get %s at %d: %v", show(c), at, err))
	case res.Status == mvcc.StatusLocked && res.Lock.Lock.Token == 0:
		h.resolve(*res.Lock)
	case res.Status == mvcc.StatusOK:
		h.model.reads = append(h.model.reads,
			modelRead{cell: c, at: at, found: res.Found, value: res.Value, commit: res.CommitTS})
		return res, true
	}
	return res, false
}

// scan reads all of a tablet, in pages, up to the first lock. Cells that it omits must not exist.
func (h *history) scan(tablet int, at mvcc.Timestamp) {
	span := []mvcc.Span{
		{Table: testTable, End: "c", HasEnd: true}, {Table: testTable, Start: "c"},
	}[tablet]
	r := mvcc.ScanRequest{Span: span, At: at, Reverse: h.chance(50), MaxBytes: h.rng.IntN(20)}
	missing := slices.DeleteFunc(dataCells(), func(c mvcc.Cell) bool { return tabletOf(c) != tablet })
	for {
		res, err := mvcc.Scan(h.tablets[tablet], r)
		if err != nil {
			h.check(faultf(assertNoError, "scan at %d: %v", at, err))
			return
		}
		h.logf("scan %d at %d: %d cells, %s", tablet, at, len(res.Cells), showPageEnd(res))
		for _, c := range res.Cells {
			h.model.reads = append(h.model.reads,
				modelRead{cell: c.Cell, at: at, found: true, value: c.Value, commit: c.CommitTS})
			missing = slices.DeleteFunc(missing, func(m mvcc.Cell) bool { return m == c.Cell })
		}
		if res.Status == mvcc.StatusLocked && res.Lock.Lock.Token == 0 {
			h.resolve(res.Lock)
		}
		if res.Status != mvcc.StatusOK {
			return
		}
		if res.Done {
			break
		}
		r.Resume = res.Last
	}
	for _, c := range missing {
		h.model.reads = append(h.model.reads, modelRead{cell: c, at: at})
	}
}
