package mvcc

import (
	"errors"
	"iter"
	"maps"
	"testing"
)

// errDisk is the fault of a faultyView.
var errDisk = errors.New("disk fault")

// faultyView is a view whose nth lookup on disk fails.
type faultyView struct {
	*MemView
	left int
}

// fails counts one lookup.
func (f *faultyView) fails() bool {
	f.left--
	return f.left < 0
}

func (f *faultyView) Newest(c Cell) (Write, bool, error) {
	if f.fails() {
		return Write{}, false, errDisk
	}
	return f.MemView.Newest(c)
}

func (f *faultyView) Older(c Cell, at Timestamp) iter.Seq2[Write, error] {
	if f.fails() {
		return func(yield func(Write, error) bool) { yield(Write{}, errDisk) }
	}
	return f.MemView.Older(c, at)
}

func (f *faultyView) Data(c Cell, start Timestamp) ([]byte, bool, error) {
	if f.fails() {
		return nil, false, errDisk
	}
	return f.MemView.Data(c, start)
}

func (f *faultyView) RolledBack(c Cell, start Timestamp) (bool, error) {
	if f.fails() {
		return false, errDisk
	}
	return f.MemView.RolledBack(c, start)
}

func (f *faultyView) Notification(c Cell) (Notify, bool, error) {
	if f.fails() {
		return Notify{}, false, errDisk
	}
	return f.MemView.Notification(c)
}

func (f *faultyView) Intent(c Cell, start Timestamp) (Intent, bool, error) {
	if f.fails() {
		return Intent{}, false, errDisk
	}
	return f.MemView.Intent(c, start)
}

func (f *faultyView) Cells(s Span, reverse bool) iter.Seq2[CellWrite, error] {
	if f.fails() {
		return func(yield func(CellWrite, error) bool) { yield(CellWrite{}, errDisk) }
	}
	return f.MemView.Cells(s, reverse)
}

func (f *faultyView) Raw(c Cell) ([]byte, bool, error) {
	if f.fails() {
		return nil, false, errDisk
	}
	return f.MemView.Raw(c)
}

// faultState is a tablet with history, a lock, a notification and an intent.
func faultState(t *testing.T) *MemView {
	t.Helper()
	m := NewMemView()
	m.Columns[ObservedColumn{testTable, "body"}] = ObservedStrong
	m.Columns[ObservedColumn{testTable, "doc"}] = ObservedWeak
	lim := DefaultLimits()
	lim.Inline = 3
	do := func(res Result, list []Mutation, err error) {
		t.Helper()
		if err != nil || res.Status != StatusOK {
			t.Fatalf("%v %v", res, err)
		}
		m.Apply(list)
	}
	for _, start := range []Timestamp{2, 4, 6} {
		do(OnePhaseCommit(m, OnePhaseRequest{StartTS: start, Writes: put("a.body", "long value")},
			start+1, lim))
	}
	do(Prewrite(m, PrewriteRequest{
		StartTS: 10, Primary: parseCell("b.body"), Writes: put("b.body", "v"),
		Intents: []Cell{parseCell("b.doc")},
	}, lim))
	do(Prewrite(m, PrewriteRequest{
		StartTS: 11, Primary: parseCell("a.body"), Writes: put("a.body", "v"),
	}, lim))
	return m
}

// put is a single write.
func put(cell, value string) []CellWriteRequest {
	return []CellWriteRequest{{Cell: parseCell(cell), Kind: KindPut, Value: []byte(value)}}
}

// faultOperation is one operation and how often it looks something up on disk when nothing fails.
type faultOperation struct {
	lookups int
	run     func(v View) (effects bool, err error)
}

// mutation is the part of a mutation's answer that the test looks at.
func mutation(_ Result, list []Mutation, err error) (bool, error) { return len(list) > 0, err }

// readFaults are the reads.
func readFaults() map[string]faultOperation {
	a := parseCell("a.body")
	return map[string]faultOperation{
		"get newest": {2, func(v View) (bool, error) { _, err := Get(v, a, 9); return false, err }},
		"get older":  {3, func(v View) (bool, error) { _, err := Get(v, a, 6); return false, err }},
		"scan": {3, func(v View) (bool, error) {
			_, err := Scan(v, ScanRequest{Span: Span{Table: testTable}, At: 6})
			return false, err
		}},
	}
}

// commitFaults are the operations of a coordinator that commits.
func commitFaults() map[string]faultOperation {
	a, b, doc, lim := parseCell("a.body"), parseCell("b.body"), parseCell("b.doc"), DefaultLimits()
	return map[string]faultOperation{
		"prewrite": {4, func(v View) (bool, error) {
			return mutation(Prewrite(v, PrewriteRequest{
				StartTS: 12, Writes: put("c.x", "v"), Intents: []Cell{doc},
			}, lim))
		}},
		"late prewrite": {2, func(v View) (bool, error) {
			return mutation(Prewrite(v, PrewriteRequest{StartTS: 2, Writes: put("a.body", "v")},
				lim))
		}},
		"commit": {3, func(v View) (bool, error) {
			return mutation(Commit(v, CommitRequest{
				StartTS: 10, CommitTS: 20, Cells: []Cell{b}, Intents: []Cell{b},
			}))
		}},
		"commit of an intent": {2, func(v View) (bool, error) {
			return mutation(Commit(v, CommitRequest{
				StartTS: 10, CommitTS: 20, Intents: []Cell{doc},
			}))
		}},
		"late commit": {4, func(v View) (bool, error) {
			return mutation(Commit(v, CommitRequest{StartTS: 2, CommitTS: 20, Cells: []Cell{a}}))
		}},
		"check one-phase": {3, func(v View) (bool, error) {
			_, err := CheckOnePhase(v, OnePhaseRequest{
				StartTS: 12, Writes: put("c.x", "v"), Notifies: []Cell{doc},
			})
			return false, err
		}},
		"one-phase commit": {3, func(v View) (bool, error) {
			r := OnePhaseRequest{StartTS: 12, Writes: put("c.body", "v"), Notifies: []Cell{doc}}
			return mutation(OnePhaseCommit(v, r, 20, lim))
		}},
	}
}

// cleanFaults are the operations that clean up, and those without transactions.
func cleanFaults() map[string]faultOperation {
	a, b, doc := parseCell("a.body"), parseCell("b.body"), parseCell("b.doc")
	return map[string]faultOperation{
		"rollback": {4, func(v View) (bool, error) {
			return mutation(Rollback(v, RollbackRequest{
				StartTS: 10, Cells: []Cell{b, a}, Intents: []Cell{doc},
			}))
		}},
		"status": {2, func(v View) (bool, error) {
			return mutation(CheckTxnStatus(v,
				CheckTxnStatusRequest{Primary: a, StartTS: 9, Now: 20}))
		}},
		"resolve forward": {4, func(v View) (bool, error) {
			return mutation(ResolveLock(v,
				ResolveLockRequest{
					StartTS: 10, CommitTS: 20, Cells: []Cell{b}, Intents: []Cell{doc},
				}))
		}},
		"resolve back": {1, func(v View) (bool, error) {
			return mutation(ResolveLock(v,
				ResolveLockRequest{StartTS: 10, Cells: []Cell{b}, Intents: []Cell{doc}}))
		}},
		"heartbeat": {2, func(v View) (bool, error) {
			return mutation(Heartbeat(v, HeartbeatRequest{Primary: a, StartTS: 9}))
		}},
		"notify": {1, func(v View) (bool, error) {
			return mutation(NotifyCells(v, NotifyRequest{TS: 20, Cells: []Cell{doc}}))
		}},
		"clear": {1, func(v View) (bool, error) {
			return mutation(ClearNotify(v, ClearNotifyRequest{Cell: a, UpTo: 20}))
		}},
		"fail": {1, func(v View) (bool, error) {
			return mutation(FailNotify(v, FailNotifyRequest{Cell: a, TS: 7, Attempts: 1}))
		}},
		"raw": {1, func(v View) (bool, error) {
			return mutation(RawWrite(v, RawWriteRequest{
				Conditions: []RawCondition{{Cell: a, Absent: true}}, Writes: put("a.x", "v"),
			}))
		}},
	}
}

// TestFaults lets every lookup of every operation fail in turn: the fault comes back,
// with no mutations.
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
			// The number of lookups is part of what is promised: evaluation is on the hot path.
			v := &faultyView{MemView: m, left: op.lookups}
			if _, err := op.run(v); err != nil || v.left != 0 {
				t.Errorf("without a fault: error %v, %d lookups, want %d", err, op.lookups-v.left,
					op.lookups)
			}
		})
	}
}
