package mvcc_test

import (
	"slices"
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// ackView has the observed cell a.body, with the given notification, and its observer.
func ackView(n mvcc.Notify) (m *mvcctest.MemView, cell, ack mvcc.Cell) {
	m = mvcctest.NewMemView()
	column := mvcc.ObservedColumn{Table: testTable, Column: "body"}
	m.Columns[column], m.Observers[column] = mvcc.ObservedStrong, []string{"observer"}
	cell, ack = parseCell("a.body"), parseCell("a.@observer")
	if n.TS != 0 {
		m.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: cell, Notify: &n}})
	}
	return m, cell, ack
}

// TestRunStaysDirtyByItsOwnChange: after a run that changes its own observed cell, the cell runs
// once more, whatever the order of the writes.
func TestRunStaysDirtyByItsOwnChange(t *testing.T) {
	for _, ackFirst := range []bool{false, true} {
		m, cell, ack := ackView(mvcc.Notify{TS: 5})
		r := mvcc.OnePhaseRequest{StartTS: 10, Origin: 3, Clear: true, Writes: []mvcc.CellWriteRequest{
			{Cell: cell, Kind: mvcc.KindPut}, {Cell: ack, Kind: mvcc.KindPut},
		}}
		if ackFirst {
			slices.Reverse(r.Writes)
		}
		res, list, err := mvcc.OnePhaseCommit(m, r, 20, mvcc.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(list)
		if n, there, _ := m.Notification(cell); !there || n.TS != 20 || !slices.Equal(res.Left, []mvcc.Cell{cell}) {
			t.Errorf("OWN-CHANGE-CLEARED: the notification is %+v, %v; left %v", n, there, res.Left)
		}
		if want := []mvcc.EndedRun{{testTable, 3, 20}}; !slices.Equal(res.Ended, want) {
			t.Errorf("HIDDEN: the run's end is reported as %v, want %v", res.Ended, want)
		}
	}
}

// TestEndOfARun: the commit of an acknowledgment returns the run's end, with the older of the
// origins of its notification and its transaction; if neither is known, it returns no end.
func TestEndOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		n      mvcc.Notify
		origin mvcc.Timestamp
		want   []mvcc.EndedRun
	}{
		"of the notification":         {mvcc.Notify{TS: 5}, 0, []mvcc.EndedRun{{testTable, 5, 20}}},
		"of the transaction":          {mvcc.Notify{TS: 5}, 3, []mvcc.EndedRun{{testTable, 3, 20}}},
		"newer than the notification": {mvcc.Notify{TS: 5}, 7, []mvcc.EndedRun{{testTable, 5, 20}}},
		"cleared already":             {mvcc.Notify{}, 3, []mvcc.EndedRun{{testTable, 3, 20}}},
		"of which nothing is said":    {mvcc.Notify{}, 0, nil},
		"changed meanwhile":           {mvcc.Notify{TS: 15}, 3, []mvcc.EndedRun{{testTable, 3, 20}}},
	} {
		for _, phases := range []int{1, 2} {
			m, _, ack := ackView(c.n)
			write := []mvcc.CellWriteRequest{{Cell: ack, Kind: mvcc.KindPut}}
			var res mvcc.Result
			var err error
			if phases == 1 {
				res, _, err = mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{
					StartTS: 10, Writes: write, Origin: c.origin, Clear: true,
				}, 20, mvcc.DefaultLimits())
			} else {
				m.PutLock(ack, mvcc.Lock{StartTS: 10, Primary: ack, Kind: mvcc.KindPut, Origin: c.origin})
				res, _, err = mvcc.Commit(m, mvcc.CommitRequest{
					StartTS: 10, CommitTS: 20, Cells: []mvcc.Cell{ack}, Clear: true,
				})
			}
			if err != nil || !slices.Equal(res.Ended, c.want) {
				t.Errorf("RUN-MISSED: %s, in %d phases: %+v, want %+v, %v", name, phases, res.Ended,
					c.want, err)
			}
		}
	}
}

// TestAcknowledgmentsOfABatch: the changes of one run count as one end with the oldest origin; an
// acknowledgment of an unknown observer clears nothing.
func TestAcknowledgmentsOfABatch(t *testing.T) {
	m, cell, ack := ackView(mvcc.Notify{TS: 7})
	other, stranger := cell, ack
	other.Row, stranger.Column = "b", parseCell("a.@stranger").Column
	older := mvcc.Notify{TS: 5}
	m.Apply([]mvcc.Mutation{{Group: mvcc.GroupNotify, Cell: other, Notify: &older}})
	second := ack
	second.Row = "b"
	var writes []mvcc.CellWriteRequest
	for _, c := range []mvcc.Cell{stranger, ack, second} {
		writes = append(writes, mvcc.CellWriteRequest{Cell: c, Kind: mvcc.KindPut})
	}
	unknown, list, err := mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{
		StartTS: 10, Clear: true, Writes: writes[:1],
	}, 15, mvcc.DefaultLimits())
	if err != nil || len(unknown.Ended) != 0 {
		t.Fatal(unknown, err)
	}
	m.Apply(list)
	if _, there, _ := m.Notification(cell); !there {
		t.Error("a stranger's acknowledgment has cleared the notification")
	}
	res, list, err := mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{
		StartTS: 11, Clear: true, Writes: writes[1:],
	}, 20, mvcc.DefaultLimits())
	if err != nil || !slices.Equal(res.Ended, []mvcc.EndedRun{{testTable, 5, 20}}) {
		t.Errorf("%+v, %v", res.Ended, err)
	}
	m.Apply(list)
	for _, c := range []mvcc.Cell{cell, other} {
		if n, there, _ := m.Notification(c); there {
			t.Errorf("%v is left: %+v", c, n)
		}
	}
}
