package rpc

import (
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// TestAdmission: changes of an acknowledgment, a raw cell or the cluster's own table are refused in
// every form; resolving any encountered lock, as every client does, is allowed.
func TestAdmission(t *testing.T) {
	type cells = []*pb.Cell
	data := &pb.Cell{Table: uint32(mvcc.FirstUserTable), Row: []byte("r"), Column: []byte("c")}
	ack := &pb.Cell{
		Table: data.Table, Row: data.Row, Class: uint32(mvcc.ClassAck), Column: []byte("o"),
	}
	odd := &pb.Cell{Table: data.Table, Row: data.Row, Class: 1 << 8, Column: []byte("c")}
	meta := &pb.Cell{Row: data.Row}
	writes := func(c *pb.Cell) []*pb.CellWrite { return []*pb.CellWrite{{Cell: c}} }
	resolve := func(commitTS uint64) func(*pb.Cell) *pb.TabletRequest {
		return func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.ResolveLockRequest{StartTs: 1, CommitTs: commitTS, Cells: cells{data, c}}
			return &pb.TabletRequest{Op: &pb.TabletRequest_ResolveLock{ResolveLock: r}}
		}
	}
	for name, tc := range map[string]struct {
		request     func(c *pb.Cell) *pb.TabletRequest
		data, mayBe bool // a user's cell, an acknowledgment
	}{
		"prewrite": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.PrewriteRequest{Primary: data, Writes: append(writes(data), writes(c)...)}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: r}}
		}, true, false},
		"primary": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.PrewriteRequest{Primary: c, Writes: writes(data)}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: r}}
		}, true, false},
		"intent": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.PrewriteRequest{Primary: data, Intents: cells{c}}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: r}}
		}, true, false},
		"one phase": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.OnePhaseRequest{Writes: writes(c)}
			return &pb.TabletRequest{Op: &pb.TabletRequest_OnePhase{OnePhase: r}}
		}, true, false},
		"commit": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.CommitRequest{Cells: cells{c}}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Commit{Commit: r}}
		}, true, false},
		"heartbeat": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.HeartbeatRequest{Primary: c}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Heartbeat{Heartbeat: r}}
		}, true, false},
		"notify": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.NotifyRequest{Cells: cells{c}}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Notify{Notify: r}}
		}, true, false},
		"roll forward": {resolve(2), true, false},
		"raw write": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.RawWriteRequest{Writes: writes(c)}
			return &pb.TabletRequest{Op: &pb.TabletRequest_RawWrite{RawWrite: r}}
		}, false, false},
		"roll back": {resolve(0), true, true},
		"rollback": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.RollbackRequest{Cells: cells{c}}
			return &pb.TabletRequest{Op: &pb.TabletRequest_Rollback{Rollback: r}}
		}, true, true},
		"status": {func(c *pb.Cell) *pb.TabletRequest {
			r := &pb.CheckTxnStatusRequest{Primary: c}
			return &pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: r}}
		}, true, true},
	} {
		for _, on := range []struct {
			what string
			cell *pb.Cell
			may  bool
		}{
			{"a user's cell", data, tc.data}, {"an acknowledgment", ack, tc.mayBe},
			{"an unknown class", odd, tc.mayBe}, {"meta", meta, false},
		} {
			_, refusal := admit(tc.request(on.cell), false)
			switch {
			case on.may && refusal != nil:
				t.Errorf("%s of %s: %v", name, on.what, refusal)
			case !on.may && refusal.GetCode() != pb.Error_CODE_PERMISSION:
				t.Errorf("%s of %s: %v, want it refused", name, on.what, refusal)
			}
		}
	}
}
