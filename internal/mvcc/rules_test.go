package mvcc

import "testing"

// TestCommitAboveNewest: commit_ts is above the cell's newest record (invariant 3), even
// in a state that the rules do not lead to: a lock that is older than the record beside
// it.
func TestCommitAboveNewest(t *testing.T) {
	m := NewMemView()
	c := parseCell("a.x")
	m.PutLock(c, Lock{StartTS: 10, Primary: c, Kind: KindPut})
	m.Apply([]Mutation{
		{Group: GroupWrite, Cell: c, Write: &Write{CommitTS: 15, StartTS: 14, Kind: KindPut}},
	})
	for commitTS, want := range map[Timestamp]Status{12: StatusCommitTSTooLow,
		15: StatusCommitTSTooLow, 16: StatusOK} {
		res, list, err := Commit(m, CommitRequest{
			StartTS: 10, CommitTS: commitTS, Cells: []Cell{c},
		})
		if err != nil || res.Status != want || (len(list) > 0) != (want == StatusOK) {
			t.Errorf("commit at %d: %s, %d effects, %v", commitTS, statusName(res.Status),
				len(list), err)
		}
		res, list, err = ResolveLock(m, ResolveLockRequest{
			StartTS: 10, CommitTS: commitTS, Cells: []Cell{c},
		})
		if err != nil || res.Status != want || (len(list) > 0) != (want == StatusOK) {
			t.Errorf("resolve at %d: %s, %d effects, %v", commitTS, statusName(res.Status),
				len(list), err)
		}
	}
}

// TestReplayIsKept: a write neither forgets that a replay is pending nor that it is one (§2.4).
func TestReplayIsKept(t *testing.T) {
	m := NewMemView()
	m.Columns[ObservedColumn{testTable, "body"}] = ObservedStrong
	c := parseCell("a.body")
	m.Apply([]Mutation{
		{Group: GroupNotify, Cell: c, Notify: &Notify{
			TS: 1, Replay: true, Attempts: 3, ParkedTS: 2, Error: "e",
		}},
	})
	_, list, err := OnePhaseCommit(m, OnePhaseRequest{StartTS: 3, Writes: put("a.body", "v")}, 4,
		DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	if n, _, _ := m.Notification(c); n != (Notify{TS: 4, Replay: true}) {
		t.Errorf("after a write: %+v", n)
	}
	_, list, err = FailNotify(m, FailNotifyRequest{Cell: c, TS: 4, Attempts: 1, Error: "again"})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(list)
	if n, _, _ := m.Notification(c); n != (Notify{TS: 4, Replay: true, Attempts: 1,
		Error: "again"}) {
		t.Errorf("after a failed run: %+v", n)
	}
}
