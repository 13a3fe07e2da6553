package mvcc_test

import (
	"fmt"
	"strings"

	"github.com/percolator-go/percolator/internal/mvcc"
)

func (s *script) prewrite() string {
	writes, intents := s.writes()
	return s.answer(mvcc.Prewrite(s.view, mvcc.PrewriteRequest{StartTS: s.ts("start"),
		Primary: s.cell("primary"), Expiry: s.ts("expiry"),
		Worker: mvcc.Worker{Node: 1, Incarnation: 1}, Writes: writes, Intents: intents,
		MinCommitTS: s.ts("least"), Secondaries: s.cells("secondaries")}, s.lim))
}

func (s *script) commit() string {
	return s.answer(mvcc.Commit(s.view, mvcc.CommitRequest{StartTS: s.ts("start"), CommitTS: s.ts("commit"),
		Cells:   s.cells("cells"),
		Intents: s.cells("intents"), Clear: s.td.HasArg("clear")}))
}

// onePhase checks and, if the check passes and a commit timestamp is given, commits.
func (s *script) onePhase() string {
	writes, notifies := s.writes()
	r := mvcc.OnePhaseRequest{StartTS: s.ts("start"), Writes: writes, Notifies: notifies,
		Clear: s.td.HasArg("clear")}
	if !s.td.HasArg("unchecked") {
		res, err := mvcc.CheckOnePhase(s.view, r)
		if err != nil || res.Status != mvcc.StatusOK || !s.td.HasArg("commit") {
			return s.answer(res, nil, err)
		}
	}
	return s.answer(mvcc.OnePhaseCommit(s.view, r, s.ts("commit"), s.lim))
}

// reserve adds the reservation of a one-phase commit, as the tablet does.
func (s *script) reserve() string {
	for _, c := range s.cells("cells") {
		s.view.PutLock(c, mvcc.Lock{
			StartTS: s.ts("start"), Primary: c, Token: 99, CommitTS: s.ts("commit"),
		})
	}
	return ""
}

func (s *script) release() string {
	for _, c := range s.cells("cells") {
		s.view.DropLock(c)
	}
	return ""
}

func (s *script) rollback() string {
	return s.answer(mvcc.Rollback(s.view, mvcc.RollbackRequest{
		StartTS: s.ts("start"), Cells: s.cells("cells"), Intents: s.cells("intents"),
		Ask: s.td.HasArg("ask"),
	}))
}

func (s *script) status() string {
	return s.answer(mvcc.CheckTxnStatus(s.view,
		mvcc.CheckTxnStatusRequest{Primary: s.cell("primary"), StartTS: s.ts("start"),
			Now: s.ts("now"), MetExpiry: s.ts("met"), WorkerDead: s.td.HasArg("dead")}))
}

func (s *script) resolve() string {
	return s.answer(mvcc.ResolveLock(s.view, mvcc.ResolveLockRequest{StartTS: s.ts("start"),
		CommitTS: s.ts("commit"),
		Cells:    s.cells("cells"), Intents: s.cells("intents")}))
}

func (s *script) heartbeat() string {
	return s.answer(mvcc.Heartbeat(s.view, mvcc.HeartbeatRequest{
		Primary: s.cell("primary"), StartTS: s.ts("start"), Expiry: s.ts("expiry"),
	}))
}

func (s *script) notify() string {
	return s.answer(mvcc.NotifyCells(s.view, mvcc.NotifyRequest{
		TS: s.ts("ts"), Cells: s.cells("cells"), Replay: s.td.HasArg("replay"),
	}))
}

func (s *script) clearNotify() string {
	return s.answer(mvcc.ClearNotify(s.view, mvcc.ClearNotifyRequest{
		Cell: s.cell("cell"), UpTo: s.ts("upto"), Observer: s.text("observer"),
	}))
}

func (s *script) failNotify() string {
	return s.answer(mvcc.FailNotify(s.view, mvcc.FailNotifyRequest{Cell: s.cell("cell"), TS: s.ts("ts"),
		Attempts: uint32(s.number("attempts")), ParkedTS: s.ts("parked"), Error: s.text("error"),
		Observer: s.text("observer")}))
}

// raw reads the input lines "if cell is value", "if cell absent", "put cell value", "delete cell".
func (s *script) raw() string {
	var r mvcc.RawWriteRequest
	var rest strings.Builder
	for line := range strings.Lines(s.td.Input) {
		f := strings.Fields(line)
		switch {
		case f[0] != "if":
			rest.WriteString(line)
		case f[2] == "absent":
			r.Conditions = append(r.Conditions, mvcc.RawCondition{Cell: parseCell(f[1]), Absent: true})
		default:
			r.Conditions = append(r.Conditions,
				mvcc.RawCondition{Cell: parseCell(f[1]), Value: []byte(f[3])})
		}
	}
	s.td.Input = rest.String()
	r.Writes, _ = s.writes()
	return s.answer(mvcc.RawWrite(s.view, r))
}

// restore reads the input lines "cell start commit value".
func (s *script) restore() string {
	var r mvcc.RestoreRequest
	for line := range strings.Lines(s.td.Input) {
		var c mvcc.RestoredCell
		var cell, value string
		if _, err := fmt.Sscan(line, &cell, &c.StartTS, &c.CommitTS, &value); err != nil {
			return "error: " + err.Error()
		}
		c.Cell, c.Value = parseCell(cell), []byte(value)
		r.Records = append(r.Records, c)
	}
	return s.answer(mvcc.Restore(s.view, r, s.lim))
}

func (s *script) get() string {
	res, err := mvcc.Get(s.view, s.cell("cell"), s.ts("at"))
	return showRead(res, err)
}

// showRead prints the answer to a read.
func showRead(res mvcc.ReadResult, err error) string {
	switch {
	case err != nil:
		return "error: " + err.Error()
	case res.Status == mvcc.StatusLocked:
		return "locked\n  " + describe(*res.Lock)
	case res.Status != mvcc.StatusOK:
		return statusName(res.Status)
	case res.Found:
		return fmt.Sprintf("%s (commit=%d start=%d)", shorten(res.Value), res.CommitTS, res.StartTS)
	case res.Deleted:
		return fmt.Sprintf("deleted (commit=%d start=%d)", res.CommitTS, res.StartTS)
	}
	return "nothing"
}

// shorten keeps long values readable.
func shorten(value []byte) string {
	if len(value) > 40 {
		return fmt.Sprintf("%s… (%d bytes)", value[:10], len(value))
	}
	return string(value)
}

// scan reads a page, or with "pages" all of them, each page resuming after the one before.
func (s *script) scan() string {
	r := mvcc.ScanRequest{Span: mvcc.Span{
		Table: testTable, Start: s.text("from"), End: s.text("to"), HasEnd: s.td.HasArg("to"),
	},
		At: s.ts("at"), Reverse: s.td.HasArg("reverse"), Acks: s.td.HasArg("acks"),
		MaxRows: s.number("rows"), MaxBytes: s.number("bytes"),
		Records: s.td.HasArg("records"), Since: s.ts("since"),
		KeysOnly: s.td.HasArg("keys"), WrittenBefore: s.ts("before")}
	if arg, ok := s.td.Arg("columns"); ok {
		r.Columns = arg.Vals
	}
	if s.td.HasArg("resume") {
		c := s.cell("resume")
		r.Resume = &c
	}
	var b strings.Builder
	for {
		res, err := mvcc.Scan(s.view, r)
		if err != nil {
			return "error: " + err.Error()
		}
		for _, c := range res.Cells {
			fmt.Fprintf(&b, "%s = %s (commit=%d)%s\n", show(c.Cell), shorten(c.Value), c.CommitTS,
				showRecord(c))
		}
		if res.Done || res.Status != mvcc.StatusOK || !s.td.HasArg("pages") {
			return b.String() + showPageEnd(res)
		}
		b.WriteString(showPageEnd(res) + "\n")
		r.Resume, r.ResumeTS = res.Last, res.LastTS
	}
}

// showRecord prints the fields that only a record has.
func showRecord(c mvcc.ReadCell) string {
	switch {
	case c.Deleted:
		return fmt.Sprintf(" start=%d deleted", c.StartTS)
	case c.StartTS != 0:
		return fmt.Sprintf(" start=%d", c.StartTS)
	}
	return ""
}

// showPageEnd prints where a page ended and why.
func showPageEnd(res mvcc.ScanResult) string {
	end := "more"
	switch {
	case res.Status == mvcc.StatusLocked:
		end = "locked, " + describe(res.Lock)
	case res.Status != mvcc.StatusOK:
		end = statusName(res.Status)
	case res.Done:
		end = "done"
	}
	if res.Last != nil {
		end += ", last " + show(*res.Last)
	}
	if res.Oldest != 0 {
		end += fmt.Sprintf(", left out since %d", res.Oldest)
	}
	return "-- " + end
}

// reader does what a client does that encounters a lock: it asks the primary, resolves accordingly
// and reads again (§2.2).
func (s *script) reader() string {
	c, at := s.cell("cell"), s.ts("at")
	var b strings.Builder
	res, err := mvcc.Get(s.view, c, at)
	b.WriteString("get: " + showRead(res, err))
	if res.Status != mvcc.StatusLocked {
		return b.String()
	}
	lock := res.Lock.Lock
	status, list, err := mvcc.CheckTxnStatus(s.view,
		mvcc.CheckTxnStatusRequest{Primary: lock.Primary, StartTS: lock.StartTS, Now: s.ts("now"),
			MetExpiry: lock.Expiry, WorkerDead: s.td.HasArg("dead")})
	b.WriteString("\nstatus of the primary: " + s.answer(status, list, err))
	if status.Status != mvcc.StatusCommitted && status.Status != mvcc.StatusRolledBack {
		return b.String()
	}
	b.WriteString("\nresolve: " + s.answer(mvcc.ResolveLock(s.view,
		mvcc.ResolveLockRequest{StartTS: lock.StartTS, CommitTS: status.CommitTS,
			Cells: []mvcc.Cell{c}})))
	res, err = mvcc.Get(s.view, c, at)
	b.WriteString("\nget: " + showRead(res, err))
	return b.String()
}
