package mvcc_test

import (
	"testing"

	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/mvcc/mvcctest"
)

// TestCommitAboveNewest: commit_ts is above the cell's newest record (atomic commit), even in a
// state that the rules never produce: a lock older than the record next to it.
func TestCommitAboveNewest(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.x")
	m.PutLock(c, mvcc.Lock{StartTS: 10, Primary: c, Kind: mvcc.KindPut})
	m.Apply([]mvcc.Mutation{
		{Group: mvcc.GroupWrite, Cell: c, Write: &mvcc.Write{CommitTS: 15, StartTS: 14, Kind: mvcc.KindPut}},
	})
	for commitTS, want := range map[mvcc.Timestamp]mvcc.Status{12: mvcc.StatusCommitTSTooLow,
		15: mvcc.StatusCommitTSTooLow, 16: mvcc.StatusOK} {
		res, list, err := mvcc.Commit(m, mvcc.CommitRequest{
			StartTS: 10, CommitTS: commitTS, Cells: []mvcc.Cell{c},
		})
		if err != nil || res.Status != want || (len(list) > 0) != (want == mvcc.StatusOK) {
			t.Errorf("commit at %d: %s, %d effects, %v", commitTS, statusName(res.Status),
				len(list), err)
		}
		res, list, err = mvcc.ResolveLock(m, mvcc.ResolveLockRequest{
			StartTS: 10, CommitTS: commitTS, Cells: []mvcc.Cell{c},
		})
		if err != nil || res.Status != want || (len(list) > 0) != (want == mvcc.StatusOK) {
			t.Errorf("resolve at %d: %s, %d effects, %v", commitTS, statusName(res.Status),
				len(list), err)
		}
	}
}

// TestReplayIsKept: a notification that is a pending replay stays a replay after a write of its
// cell and after a failed run (§2.4).
func TestReplayIsKept(t *testing.T) {
	m := mvcctest.NewMemView()
	m.Columns[mvcc.ObservedColumn{Table: testTable, Column: "body"}] = mvcc.ObservedStrong
	c := parseCell("a.body")
	m.Apply([]mvcc.Mutation{
		{Group: mvcc.GroupNotify, Cell: c, Notify: &mvcc.Notify{
			TS: 1, Replay: true, Attempts: 3, ParkedTS: 2, Error: "e",
		}},
	})
	_, list, err := mvcc.OnePhaseCommit(m, mvcc.OnePhaseRequest{StartTS: 3, Writes: put("a.body", "v")}, 4,
		mvcc.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	both := mvcc.Origins{First: 1, Until: 1, Later: 4}
	if n, _, _ := m.Notification(c); n != (mvcc.Notify{TS: 4, Replay: true, Origins: both}) {
		t.Errorf("after a write: %+v", n)
	}
	_, list, err = mvcc.FailNotify(m, mvcc.FailNotifyRequest{Cell: c, TS: 4, Attempts: 1, Error: "again"})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	if n, _, _ := m.Notification(c); n != (mvcc.Notify{TS: 4, Replay: true, Attempts: 1,
		Error: "again", Origins: both}) {
		t.Errorf("after a failed run: %+v", n)
	}
}

// TestLateCopyOfALock: a copy of a prewrite that arrives after its lock without a write has
// committed is answered as committed, without a conflict with itself.
func TestLateCopyOfALock(t *testing.T) {
	m := mvcctest.NewMemView()
	c := parseCell("a.body")
	m.Apply([]mvcc.Mutation{
		{Group: mvcc.GroupLocked, Cell: c, Write: &mvcc.Write{
			StartTS: 5, CommitTS: 8, Kind: mvcc.KindLock,
		}},
	})
	for start, want := range map[mvcc.Timestamp]mvcc.Result{
		5: {Status: mvcc.StatusCommitted, CommitTS: 8},
		6: {Status: mvcc.StatusConflict, CommitTS: 8, ConflictAt: c},
		9: {Status: mvcc.StatusOK},
	} {
		res, _, err := mvcc.Prewrite(m, mvcc.PrewriteRequest{
			StartTS: start, Primary: parseCell("p.body"),
			Writes: []mvcc.CellWriteRequest{{Cell: c, Kind: mvcc.KindLock}},
		}, mvcc.DefaultLimits())
		if err != nil || res.Status != want.Status || res.CommitTS != want.CommitTS {
			t.Errorf("from %d: %+v, %v, want %+v", start, res, err, want)
		}
	}
}
