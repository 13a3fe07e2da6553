package backup_test

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/backup"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/wire"
	"github.com/percolator-go/percolator/percolatortest"
)

// TestAsyncCommitsAreBackedUpWhole: a backup decides the asynchronous commits whose locks it
// encounters: it contains those that are complete, and nothing of the others.
func TestAsyncCommitsAreBackedUpWhole(t *testing.T) {
	from := start(t, 10)
	c := handle.Client(from.DB())
	tables, err := c.Tables(t.Context())
	must(t, err)
	id := mvcc.TableID(tables[slices.IndexFunc(tables, func(x *pb.Table) bool { return x.Name == "bank" })].Id)
	// prewrite locks the rows of a transaction that names all, whose coordinator is dead.
	prewrite := func(all []string, locked int) {
		t.Helper()
		start, err := c.Timestamp(t.Context())
		must(t, err)
		var cells []*pb.Cell
		for _, row := range all {
			cells = append(cells, wire.CellPB(mvcc.Cell{Table: id, Row: row, Column: "v"}))
		}
		for i, cell := range cells[:locked] {
			req := &pb.PrewriteRequest{StartTs: uint64(start), Primary: cells[0], Async: true,
				Expiry: uint64(mvcc.TimestampAt(start.Millis() + 500)), Worker: &pb.Worker{},
				Writes: []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT, Value: []byte("async")}}}
			if i == 0 {
				req.Secondaries = cells[1:]
			}
			resp, _, err := c.Send(t.Context(), wire.Position{Table: id, Row: all[i]},
				&pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{Prewrite: req}})
			must(t, err)
			if resp.GetMutation().GetMinCommitTs() == 0 {
				t.Fatal(resp)
			}
		}
	}
	prewrite([]string{"row000001 whole", "row000070 whole"}, 2)
	prewrite([]string{"row000002 part", "row000040 part", "row000071 part"}, 2)
	l := open(t, t.TempDir())
	create(t, from.DB(), l, backup.CreateOptions{})
	to := percolatortest.Start(t, nil)
	_, err = backup.Restore(t.Context(), handle.Client(to.DB()), l, backup.RestoreOptions{})
	must(t, err)
	restored := contentsNow(t, to.DB(), "bank")
	equal(t, "restored", restored, contentsNow(t, from.DB(), "bank"))
	whole := 0
	for cell := range restored {
		if strings.Contains(cell, "part") {
			t.Errorf("a transaction that was not committed is in the backup: %q", cell)
		}
		if strings.Contains(cell, "whole") {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d of 2 cells of a committed transaction are in the backup", whole)
	}
}
