package rpc

import (
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
)

// timerFor returns the cell of a timer of the table.
func timerFor(table uint32) *pb.Cell {
	cell, _ := mvcc.Timer{
		Target: mvcc.Cell{Table: mvcc.TableID(table), Row: "r", Column: "c"}, Due: 1,
	}.Write()
	return wire.CellPB(cell)
}

// onTimers returns the requests by which a transaction sets a timer and ends.
func onTimers(c *pb.Cell) map[string]*pb.TabletRequest {
	writes := []*pb.CellWrite{{Cell: c}}
	return map[string]*pb.TabletRequest{
		"prewrite": {Op: &pb.TabletRequest_Prewrite{
			Prewrite: &pb.PrewriteRequest{Primary: c, Writes: writes},
		}},
		"one phase": {Op: &pb.TabletRequest_OnePhase{
			OnePhase: &pb.OnePhaseRequest{Writes: writes},
		}},
		"commit":    {Op: &pb.TabletRequest_Commit{Commit: &pb.CommitRequest{Cells: []*pb.Cell{c}}}},
		"heartbeat": {Op: &pb.TabletRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{Primary: c}}},
		"rollback": {Op: &pb.TabletRequest_Rollback{
			Rollback: &pb.RollbackRequest{Cells: []*pb.Cell{c}},
		}},
		"resolve": {Op: &pb.TabletRequest_ResolveLock{
			ResolveLock: &pb.ResolveLockRequest{Cells: []*pb.Cell{c}},
		}},
	}
}

// TestTimersAreNotRead: no client reads the table of timers, which has rows of all tables, and none
// writes anything into it but timers of user tables.
func TestTimersAreNotRead(t *testing.T) {
	kinds := (&pb.TabletRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	tried := 0
	for i := range kinds.Len() {
		req := about(kinds.Get(i), uint32(mvcc.TimerTable))
		if req == nil {
			continue
		}
		tried++
		if one := req.GetOnePhase(); one != nil {
			one.Writes = []*pb.CellWrite{{Cell: one.Notifies[0]}}
		}
		if _, e := admit(req, false); e.GetCode() != pb.Error_CODE_PERMISSION {
			t.Errorf("TIMERS-READ: %s: %v", kinds.Get(i).Name(), e)
		}
	}
	if tried < 14 {
		t.Errorf("%d kinds of operations were tried", tried)
	}
	get := &pb.TabletRequest{Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{
		Cells: []*pb.Cell{timerFor(20)},
	}}}
	if _, e := admit(get, false); e.GetCode() != pb.Error_CODE_PERMISSION {
		t.Errorf("TIMERS-READ: one timer: %v", e)
	}
	for _, table := range []uint32{0, 15, uint32(mvcc.TimerTable), 1<<32 - 1} {
		for name, req := range onTimers(timerFor(table)) {
			if _, e := admit(req, false); e.GetCode() != pb.Error_CODE_PERMISSION {
				t.Errorf("TIMERS-READ: %s of a timer of table %d: %v", name, table, e)
			}
		}
	}
}

// TestTimersTakeTheTablesGrant: a client that may write a table may set its timers, and no other;
// and the table must exist.
func TestTimersTakeTheTablesGrant(t *testing.T) {
	policy := &pb.Policy{Grants: []*pb.Grant{
		{Table: 20, TableName: "t", Name: "reads", Role: "reader"},
		{Table: 20, TableName: "t", Name: "writes", Role: "writer"},
	}}
	g := grants{read: func() (*pb.Policy, time.Time) { return policy, time.Now() }}
	for _, table := range []uint32{20, 21} {
		for name, req := range onTimers(timerFor(table)) {
			if highest, e := admit(req, false); e != nil || highest != table {
				t.Errorf("%s: %v, looks for table %d", name, e, highest)
			}
			for _, who := range []string{"reads", "writes", "none"} {
				e := g.refuse(Caller{Role: certs.Writer, Name: who}, req)
				if may := table == 21 || who == "writes"; (e == nil) != may {
					t.Errorf("GRANT-IGNORED: %s of a timer of table %d by %s: %v", name, table, who, e)
				}
			}
		}
	}
}
