package rpc

import (
	"context"
	"errors"
	"sync"
	"testing"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// counted is a transport that counts queries for tables and may fail them.
type counted struct {
	*txntest.Process
	mu        sync.Mutex
	asked     int
	fail      error
	catalogue *pb.Catalogue
}

func (c *counted) Tables(ctx context.Context) ([]*pb.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.fail != nil {
		return nil, c.fail
	}
	return c.Process.Tables(ctx)
}

func (c *counted) Catalogue(context.Context) (*pb.Catalogue, error) { return c.catalogue, nil }

// operationsOn returns operations on a cell of the table, one of each kind that names a table.
func operationsOn(table uint32) map[string]*pb.TabletRequest {
	cell := &pb.Cell{Table: table, Row: []byte("a"), Column: []byte("c")}
	writes := []*pb.CellWrite{{Cell: cell, Kind: pb.Kind_KIND_PUT, Value: []byte("v")}}
	cells, span := []*pb.Cell{cell}, &pb.Span{Table: table}
	return map[string]*pb.TabletRequest{
		"get":     {Op: &pb.TabletRequest_Get{Get: &pb.GetRequest{At: 1, Cells: cells}}},
		"scan":    {Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{At: 1, Span: span}}},
		"changes": {Op: &pb.TabletRequest_Changes{Changes: &pb.ChangesRequest{Since: 1, Span: span}}},
		"prewrite": {
			Op: &pb.TabletRequest_Prewrite{
				Prewrite: &pb.PrewriteRequest{StartTs: 1, Primary: cell, Writes: writes},
			},
		},
		"onephase": {
			Op: &pb.TabletRequest_OnePhase{
				OnePhase: &pb.OnePhaseRequest{StartTs: 1, Writes: writes},
			},
		},
		"rollback": {
			Op: &pb.TabletRequest_Rollback{Rollback: &pb.RollbackRequest{StartTs: 1, Cells: cells}},
		},
		"status": {
			Op: &pb.TabletRequest_CheckTxnStatus{
				CheckTxnStatus: &pb.CheckTxnStatusRequest{StartTs: 1, Primary: cell},
			},
		},
		"notify":  {Op: &pb.TabletRequest_Notify{Notify: &pb.NotifyRequest{Ts: 1, Cells: cells}}},
		"rawget":  {Op: &pb.TabletRequest_RawGet{RawGet: &pb.RawGetRequest{Cells: cells}}},
		"rawscan": {Op: &pb.TabletRequest_RawScan{RawScan: &pb.RawScanRequest{Span: span}}},
	}
}

// TestTablesToComeAreRefused: no operation under an id that was never assigned reaches a tablet;
// operations under assigned ids do, also of a dropped table, after at most one query of meta.
func TestTablesToComeAreRefused(t *testing.T) {
	ctx := context.Background()
	cluster := txntest.New()
	last := uint32(cluster.AddTable("t"))
	transport := &counted{Process: cluster.Process(1, 1), catalogue: &pb.Catalogue{}}
	s := NewServer(transport, ServerConfig{}).service
	code := func(req *pb.TabletRequest) pb.Error_Code {
		return s.do(ctx, Caller{Role: certs.Writer}, req).GetError().GetCode()
	}
	for name, req := range operationsOn(last + 1) {
		if got := code(req); got != pb.Error_CODE_NO_TABLE {
			t.Errorf("%s of a table to come: %v", name, got)
		}
	}
	if n := transport.Sent(); n != 0 {
		t.Errorf("%d operations have reached a tablet", n)
	}
	known := func(what string, id uint32, questions int) {
		t.Helper()
		transport.asked = 0
		for name, req := range operationsOn(id) {
			if got := code(req); got == pb.Error_CODE_NO_TABLE {
				t.Errorf("%s of %s: %v", name, what, got)
			}
		}
		if transport.asked != questions {
			t.Errorf("%s: %d questions, want %d", what, transport.asked, questions)
		}
	}
	known("a table that there is", last, 0)
	known("a table that another node has made", uint32(cluster.AddTable("u")), 1)
	made, err := s.CreateTable(ctx, &pb.CreateTableRequest{Name: "v"})
	if err != nil {
		t.Fatal(err)
	}
	known("a table that this node has made", made.Table.Id, 0)
	transport.catalogue = &pb.Catalogue{DroppedTables: []uint32{made.Table.Id + 1}}
	known("a table that was dropped", made.Table.Id+1, 1)
	transport.catalogue = &pb.Catalogue{
		Gone: []*pb.TableRange{{First: 20, Last: made.Table.Id + 7}},
	}
	known("a table of which nothing is left", made.Table.Id+7, 1)
}

// TestTablesThatCannotBeLookedUp: while meta is unavailable the answer is "unavailable"; the client
// retries.
func TestTablesThatCannotBeLookedUp(t *testing.T) {
	cluster := txntest.New()
	id := uint32(cluster.AddTable("t"))
	transport := &counted{
		Process: cluster.Process(1, 1), fail: errors.New("meta is away"),
		catalogue: &pb.Catalogue{},
	}
	s := NewServer(transport, ServerConfig{}).service
	get := operationsOn(id)["get"]
	if got := s.do(context.Background(), Caller{Role: certs.Writer},
		get).GetError().GetCode(); got != pb.Error_CODE_UNAVAILABLE {
		t.Errorf("while meta is away: %v", got)
	}
	transport.fail = nil
	if got := s.do(context.Background(), Caller{Role: certs.Writer},
		get).GetError(); got.GetCode() == pb.Error_CODE_UNAVAILABLE ||
		got.GetCode() == pb.Error_CODE_NO_TABLE {
		t.Errorf("afterwards: %v", got)
	}
}

var _ txn.Transport = (*counted)(nil)
