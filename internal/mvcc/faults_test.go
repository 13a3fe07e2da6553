package mvcc_test

import (
	"errors"
	"iter"
	"maps"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// errDisk is the fault of a faultyView.
var errDisk = errors.New("disk fault")

// faultyView is a view whose nth lookup on disk fails.
type faultyView struct {
	*mvcctest.MemView
	left int
}

// fails counts one lookup and reports whether it fails.
func (f *faultyView) fails() bool {
	f.left--
	return f.left < 0
}

func (f *faultyView) Newest(c mvcc.Cell) (mvcc.Write, bool, error) {
	if f.fails() {
		return mvcc.Write{}, false, errDisk
	}
	return f.MemView.Newest(c)
}

func (f *faultyView) Older(c mvcc.Cell, at mvcc.Timestamp) iter.Seq2[mvcc.Write, error] {
	if f.fails() {
		return func(yield func(mvcc.Write, error) bool) { yield(mvcc.Write{}, errDisk) }
	}
	return f.MemView.Older(c, at)
}

func (f *faultyView) Data(c mvcc.Cell, start mvcc.Timestamp) ([]byte, bool, error) {
	if f.fails() {
		return nil, false, errDisk
	}
	return f.MemView.Data(c, start)
}

func (f *faultyView) PastLock(c mvcc.Cell, from mvcc.Timestamp) (mvcc.Write, bool, error) {
	if f.fails() {
		return mvcc.Write{}, false, errDisk
	}
	return f.MemView.PastLock(c, from)
}

func (f *faultyView) RolledBack(c mvcc.Cell, start mvcc.Timestamp) (bool, error) {
	if f.fails() {
		return false, errDisk
	}
	return f.MemView.RolledBack(c, start)
}

func (f *faultyView) Notification(c mvcc.Cell) (mvcc.Notify, bool, error) {
	if f.fails() {
		return mvcc.Notify{}, false, errDisk
	}
	return f.MemView.Notification(c)
}

func (f *faultyView) Intent(c mvcc.Cell, start mvcc.Timestamp) (mvcc.Intent, bool, error) {
	if f.fails() {
		return mvcc.Intent{}, false, errDisk
	}
	return f.MemView.Intent(c, start)
}

func (f *faultyView) Cells(s mvcc.Span, reverse bool) iter.Seq2[mvcc.CellWrite, error] {
	if f.fails() {
		return func(yield func(mvcc.CellWrite, error) bool) { yield(mvcc.CellWrite{}, errDisk) }
	}
	return f.MemView.Cells(s, reverse)
}

func (f *faultyView) Raw(c mvcc.Cell) ([]byte, bool, error) {
	if f.fails() {
		return nil, false, errDisk
	}
	return f.MemView.Raw(c)
}

// faultState is a tablet with history, a lock, a notification and an intent.
func faultState(t *testing.T) *mvcctest.MemView {
	t.Helper()
	m := mvcctest.NewMemView()
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "body"}] = mvcc.ObservedStrong
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "doc"}] = mvcc.ObservedWeak
	lim := mvcc.DefaultLimits()
	lim.Inline = 3
	do := func(res mvcc.Result, list []mvcc.Mutation, err error) {
		t.Helper()
		if err != nil || res.Status != mvcc.StatusOK {
			t.Fatalf("%v %v", res, err)
		}
		m.Apply(list)
	}
	for _, start := range []mvcc.Timestamp{2, 4, 6} {
		do(mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{StartTS: start, Writes: put("a.body", "long value")},
			start+1, lim))
	}
	do(mvcc.Prewrite(m, mvcc.PrewriteRequest{
		StartTS: 10, Primary: parseCell("b.body"), Writes: put("b.body", "v"),
		Intents: []mvcc.Cell{parseCell("b.doc")},
	}, lim))
	do(mvcc.Prewrite(m, mvcc.PrewriteRequest{
		StartTS: 11, Primary: parseCell("a.body"), Writes: put("a.body", "v"),
	}, lim))
	return m
}

// put is a single write.
func put(cell, value string) []mvcc.CellWriteRequest {
	return []mvcc.CellWriteRequest{{Cell: parseCell(cell), Kind: mvcc.KindPut, Value: []byte(value)}}
}

// faultOperation is one operation and its number of lookups on disk when nothing fails.
type faultOperation struct {
	lookups int
	run     func(v mvcc.View) (effects bool, err error)
}

// mutation returns the checked part of a mutation's answer.
func mutation(_ mvcc.Result, list []mvcc.Mutation, err error) (bool, error) {
	return len(list) > 0, err
}

// readFaults are the reads.
func readFaults() map[string]faultOperation {
	a := parseCell("a.body")
	return map[string]faultOperation{
		"get newest": {2, func(v mvcc.View) (bool, error) { _, err := mvcc.Get(v, a, 9); return false, err }},
		"get older":  {3, func(v mvcc.View) (bool, error) { _, err := mvcc.Get(v, a, 6); return false, err }},
		"scan": {3, func(v mvcc.View) (bool, error) {
			_, err := mvcc.Scan(v, mvcc.ScanRequest{Span: mvcc.Span{Table: testTable}, At: 6})
			return false, err
		}},
	}
}

// commitFaults are the operations of a committing coordinator.
func commitFaults() map[string]faultOperation {
	a, b, doc, lim := parseCell("a.body"), parseCell("b.body"), parseCell("b.doc"), mvcc.DefaultLimits()
	return map[string]faultOperation{
		"prewrite": {5, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Prewrite(v, mvcc.PrewriteRequest{
				StartTS: 12, Writes: put("c.x", "v"), Intents: []mvcc.Cell{doc},
			}, lim))
		}},
		"late prewrite": {2, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Prewrite(v, mvcc.PrewriteRequest{StartTS: 2, Writes: put("a.body", "v")},
				lim))
		}},
		"commit": {3, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Commit(v, mvcc.CommitRequest{
				StartTS: 10, CommitTS: 20, Cells: []mvcc.Cell{b}, Intents: []mvcc.Cell{b},
			}))
		}},
		"commit of an intent": {2, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Commit(v, mvcc.CommitRequest{
				StartTS: 10, CommitTS: 20, Intents: []mvcc.Cell{doc},
			}))
		}},
		"late commit": {4, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Commit(v, mvcc.CommitRequest{StartTS: 2, CommitTS: 20, Cells: []mvcc.Cell{a}}))
		}},
		"check one-phase": {4, func(v mvcc.View) (bool, error) {
			_, err := mvcc.CheckOnePhase(v, mvcc.OnePhaseRequest{
				StartTS: 12, Writes: put("c.x", "v"), Notifies: []mvcc.Cell{doc},
			})
			return false, err
		}},
		"one-phase commit": {3, func(v mvcc.View) (bool, error) {
			r := mvcc.OnePhaseRequest{StartTS: 12, Writes: put("c.body", "v"), Notifies: []mvcc.Cell{doc}}
			return mutation(mvcc.OnePhaseCommit(v, r, 20, lim))
		}},
	}
}

// cleanFaults are the cleaning operations, and those without transactions.
func cleanFaults() map[string]faultOperation {
	a, b, doc := parseCell("a.body"), parseCell("b.body"), parseCell("b.doc")
	return map[string]faultOperation{
		"rollback": {4, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Rollback(v, mvcc.RollbackRequest{
				StartTS: 10, Cells: []mvcc.Cell{b, a}, Intents: []mvcc.Cell{doc},
			}))
		}},
		"status": {2, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.CheckTxnStatus(v,
				mvcc.CheckTxnStatusRequest{Primary: a, StartTS: 9, Now: 20}))
		}},
		"resolve forward": {4, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.ResolveLock(v,
				mvcc.ResolveLockRequest{
					StartTS: 10, CommitTS: 20, Cells: []mvcc.Cell{b}, Intents: []mvcc.Cell{doc},
				}))
		}},
		"resolve back": {1, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.ResolveLock(v,
				mvcc.ResolveLockRequest{StartTS: 10, Cells: []mvcc.Cell{b}, Intents: []mvcc.Cell{doc}}))
		}},
		"heartbeat": {2, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.Heartbeat(v, mvcc.HeartbeatRequest{Primary: a, StartTS: 9}))
		}},
		"notify": {1, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.NotifyCells(v, mvcc.NotifyRequest{TS: 20, Cells: []mvcc.Cell{doc}}))
		}},
		"clear": {1, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.ClearNotify(v, mvcc.ClearNotifyRequest{Cell: a, UpTo: 20}))
		}},
		"fail": {1, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.FailNotify(v, mvcc.FailNotifyRequest{Cell: a, TS: 7, Attempts: 1}))
		}},
		"raw": {1, func(v mvcc.View) (bool, error) {
			return mutation(mvcc.RawWrite(v, mvcc.RawWriteRequest{
				Conditions: []mvcc.RawCondition{{Cell: a, Absent: true}}, Writes: put("a.x", "v"),
			}))
		}},
	}
}

// TestFaults makes every lookup of every operation fail in turn: the operation returns the error
// and no mutations.
func TestFaults(t *testing.T) {
	operations := readFaults()
	maps.Copy(operations, commitFaults())
	maps.Copy(operations, cleanFaults())
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			m := faultState(t)
			for n := range op.lookups {
				effects, err := op.run(&faultyView{MemView: m, left: n})
				if !errors.Is(err, errDisk) || effects {
					t.Errorf("fault in lookup %d: error %v, effects %t", n+1, err, effects)
				}
			}
			// The number of lookups is guaranteed: evaluation is on the hot path.
			v := &faultyView{MemView: m, left: op.lookups}
			if _, err := op.run(v); err != nil || v.left != 0 {
				t.Errorf("without a fault: error %v, %d lookups, want %d", err, op.lookups-v.left,
					op.lookups)
			}
		})
	}
}
