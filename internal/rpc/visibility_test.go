package rpc

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// schemaOfTwo has the tables SECRET, with id 20, which requires a grant, and open, with id 21.
type schemaOfTwo struct{}

func (schemaOfTwo) Tables(context.Context) ([]*pb.Table, error) {
	return []*pb.Table{{Id: 19, Name: "SECRET", DroppedTs: 1}, {Id: 20, Name: "SECRET"}, {Id: 21, Name: "open"}}, nil
}

func (schemaOfTwo) Catalogue(context.Context) (*pb.Catalogue, error) {
	return &pb.Catalogue{Observers: []*pb.ObserverInfo{
		{Name: "SECRET", Table: 20}, {Name: "open", Table: 21},
	}}, nil
}

// guardOfTwo returns a Guard that lets the client "reads" read, and the client "writes" write, the
// table SECRET.
func guardOfTwo() *Guard {
	policy := &pb.Policy{Grants: []*pb.Grant{
		{Table: 20, TableName: "SECRET", Name: "reads", Role: "reader"},
		{Table: 20, TableName: "SECRET", Name: "writes", Role: "writer"},
	}}
	return NewGuard(slog.New(slog.DiscardHandler),
		func() (*pb.Policy, time.Time) { return policy, time.Now() }, schemaOfTwo{})
}

// tablet returns a tablet between two positions; "" and 0 for its end mean unbounded.
func tablet(id uint64, start uint32, from string, end uint32, to string) *pb.TabletDescriptor {
	return &pb.TabletDescriptor{
		TabletId: id, StartTable: start, StartRow: []byte(from), EndTable: end, EndRow: []byte(to),
		EndUnbounded: end == 0,
	}
}

// tellingAnswers are answers that mention both tables: in the part on the one with grants every
// text is SECRET, in the other open.
func tellingAnswers() map[string]proto.Message {
	observer := func(table uint32, name string) *pb.ObserverState {
		return &pb.ObserverState{
			Info:     &pb.ObserverInfo{Table: table, Name: name, TableName: name, Column: []byte(name)},
			Status:   &pb.ObserverStatus{Table: name, Rows: []*pb.ObserverRow{{Row: []byte(name)}}},
			Backfill: &pb.Backfill{Name: name, NextRow: []byte(name)},
		}
	}
	reports := func() []*pb.StatusResponse {
		return []*pb.StatusResponse{
			{Tablet: tablet(2, 1, "open", 20, "SECRET"), SizeKey: []byte("SECRET"), LoadKey: []byte("SECRET")},
			{Tablet: tablet(3, 20, "SECRET", 20, "SECRET+"), SizeKey: []byte("SECRET")},
			{Tablet: tablet(4, 20, "SECRET+", 21, "open"), LoadKey: []byte("SECRET")},
			{Tablet: tablet(5, 21, "open", 0, ""), SizeKey: []byte("open")},
		}
	}
	ranges := func() (all []*pb.TabletDescriptor) {
		for _, r := range reports() {
			all = append(all, r.Tablet)
		}
		return all
	}
	jobs := func() []*pb.Job {
		return []*pb.Job{
			{Subject: "full backup", Tables: []string{"open", "SECRET"}}, {Subject: "table SECRET"},
			{Subject: "full backup of open", Tables: []string{"open"}},
		}
	}
	status := func() *pb.NodeStatusResponse {
		return &pb.NodeStatusResponse{
			Tablets: reports(), Jobs: jobs(), Observers: []*pb.ObserverStatus{
				{Name: "SECRET", Table: "SECRET", Rows: []*pb.ObserverRow{{Row: []byte("SECRET")}}},
				{Name: "open", Table: "open"},
			},
		}
	}
	grants := []*pb.Grant{
		{Table: 20, TableName: "SECRET", Name: "SECRET"}, {Table: 21, TableName: "open"},
	}
	return map[string]proto.Message{
		"Tables": &pb.TablesResponse{Tables: []*pb.Table{
			{Id: 20, Name: "SECRET", SplitKeys: [][]byte{[]byte("SECRET")},
				Restoring: &pb.RestoreMark{Source: "SECRET"}},
			{Id: 21, Name: "open"},
		}},
		"Locate": &pb.LocateResponse{Tablets: ranges()},
		"GetCatalogue": &pb.Catalogue{Observers: []*pb.ObserverInfo{
			observer(20, "SECRET").Info, observer(21, "open").Info,
		}},
		"NodeStatus": status(),
		"Observers": &pb.ObserversResponse{Observers: []*pb.ObserverState{
			observer(20, "SECRET"), observer(21, "open"),
		}},
		"ClusterStatus": &pb.ClusterStatusResponse{
			Nodes: []*pb.NodeReport{{Status: status()}, {Error: "away"}}, Jobs: append(jobs(),
				&pb.Job{Kind: "backfill", Subject: "observer SECRET"}),
			Observers: []*pb.ObserverState{observer(20, "SECRET"), observer(21, "open")},
			Findings:  []*pb.Finding{{Subject: "observer SECRET"}, {Subject: "observer open"}},
		},
		"DescribeTablet": &pb.DescribeTabletResponse{
			Tablet:   ranges()[0],
			Replicas: []*pb.ReplicaStatus{{Status: reports()[0]}, {Status: reports()[1]}, {Error: "open"}},
		},
		"Grants":        &pb.GrantsResponse{Grants: grants},
		"ClusterPolicy": &pb.ClusterPolicyResponse{Policy: &pb.Policy{Grants: grants}},
	}
}

// reaches reports whether a message of the type contains one that mentions tables.
func reaches(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	switch d.Name() {
	case "Table", "TabletDescriptor", "ObserverInfo", "ObserverStatus", "Backfill", "Grant", "Job":
		return true
	}
	if seen[d.FullName()] {
		return false
	}
	seen[d.FullName()] = true
	for i := range d.Fields().Len() {
		if m := d.Fields().Get(i).Message(); m != nil && reaches(m, seen) {
			return true
		}
	}
	return false
}

// TestGrantsHideTables: no answer to a call that takes less than the role operator mentions a table
// granted only to others; to clients with a grant, operators and nodes the answer is complete.
func TestGrantsHideTables(t *testing.T) {
	guard := guardOfTwo()
	methods(t, func(name, full string, request, response proto.Message) {
		if leastRoles[name] == certs.Operator || name == "Operations" {
			return
		}
		answer := tellingAnswers()[name]
		if answer == nil {
			// These are refused by the table that they name: TestGrantsNarrowCalls. Work reports on
			// the worker's own observers only, whose tables the call's rule checks.
			if reaches(response.ProtoReflect().Descriptor(), map[protoreflect.FullName]bool{}) &&
				name != "CreateTable" && name != "Backfill" && name != "Work" {
				t.Errorf("%s tells of tables, and is not tried", name)
			}
			return
		}
		before := prototext.Format(answer)
		for _, role := range append(certs.ClientRoles(), certs.Node, certs.Client) {
			for _, caller := range []string{"none", "reads"} {
				got, err := guard.Call(t.Context(), Caller{Role: role, Name: caller}, full, request,
					func() (any, error) { return answer, nil })
				if err != nil {
					t.Fatalf("%s of a %s: %v", name, role, err)
				}
				text := prototext.Format(got.(proto.Message))
				all := caller == "reads" || role.Includes(certs.Operator)
				if strings.Contains(text, "SECRET") != all || !strings.Contains(text, "open") {
					t.Errorf("GRANT-TOLD: %s, to %s, a %s: %s", name, caller, role, text)
				}
			}
		}
		if prototext.Format(answer) != before {
			t.Errorf("%s: the answer, which others share, was changed", name)
		}
	})
	who := Caller{Role: certs.Writer, Name: "none"}
	_, err := guard.Call(t.Context(), who, pb.Admin_DescribeTablet_FullMethodName, nil,
		func() (any, error) {
			return &pb.DescribeTabletResponse{Tablet: tablet(3, 20, "a", 20, "b")}, nil
		})
	if err == nil {
		t.Error("GRANT-TOLD: a tablet of the table alone is described")
	}
}

// TestGrantsHideRanges: for a table granted to others the tablet map returns the tablet of a given
// row, which resolving locks requires, and not the split points; paging through the map ends and
// omits nothing else. Answers of tablets reveal no more.
func TestGrantsHideRanges(t *testing.T) {
	g, none := guardOfTwo().grants, Caller{Role: certs.Reader, Name: "none"}
	h := g.filterFor(none)
	tablets := []*pb.TabletDescriptor{
		tablet(1, 0, "", 18, ""), tablet(2, 18, "", 20, "SECRET1"), tablet(3, 20, "SECRET1", 20, "SECRET2"),
		tablet(4, 20, "SECRET2", 21, "k"), tablet(5, 21, "k", 0, ""),
	}
	locate := func(at wire.Position) []*pb.TabletDescriptor {
		for i, d := range tablets {
			if wire.Holds(d, at) {
				return h.located(at, tablets[i:min(i+2, len(tablets))])
			}
		}
		return nil
	}
	var met []uint64
	for at, ok := (wire.Position{}), true; ok; {
		page := locate(at)
		if len(page) == 0 || !wire.Holds(page[0], at) || len(met) > 10 {
			t.Fatalf("at %v: %v, after %v", at, page, met)
		}
		for _, d := range page {
			if strings.Contains(d.String(), "SECRET") {
				t.Errorf("GRANT-TOLD: %v", d)
			}
			met = append(met, d.TabletId)
		}
		at, ok = wire.EndOf(page[len(page)-1])
	}
	if len(met) != 5 { // 1 and 2, then 2 for all of the table, then 4 and 5
		t.Errorf("met %v", met)
	}
	for row, id := range map[string]uint64{"": 2, "SECRET1": 3, "SECRET3": 4} {
		page := locate(wire.Position{Table: 20, Row: row})
		end, _ := wire.EndOf(page[0])
		if page[0].TabletId != id || row != "" && (end != wire.Position{Table: 20, Row: row + "\x00"}) {
			t.Errorf("GRANT-TOLD: %q is in %v", row, page[0])
		}
	}
	// A View does not know the row that was asked for.
	all := View{h}.Narrow(&pb.LocateResponse{Tablets: tablets})
	if text := prototext.Format(all); strings.Contains(text, "SECRET") || strings.Count(text, "tablet_id") != 4 {
		t.Errorf("GRANT-TOLD: %s", text)
	}
	for _, resp := range []*pb.TabletResponse{
		{Error: &pb.Error{Code: pb.Error_CODE_WRONG_TABLET, Descriptors: tablets}},
		{Result: &pb.TabletResponse_Status{Status: &pb.StatusResponse{
			Tablet: tablets[1], LoadKey: []byte("SECRET")}}},
		{Result: &pb.TabletResponse_Status{Status: &pb.StatusResponse{Tablet: tablets[2]}}},
	} {
		if got := g.answer(none, resp); strings.Contains(got.String(), "SECRET") {
			t.Errorf("GRANT-TOLD: %v", got)
		}
		if got := g.answer(Caller{Role: certs.Reader, Name: "reads"}, resp); got != resp {
			t.Errorf("nothing is hidden: %v", got)
		}
	}
}

// TestGrantsNarrowCalls: rerunning observers of a table requires a grant to write it, and so does
// splitting; reading requires one to read. Tables and observers without grants, or unknown ones,
// are unaffected.
func TestGrantsNarrowCalls(t *testing.T) {
	guard := guardOfTwo()
	for _, c := range []struct {
		method string
		req    func(name string) proto.Message
		needs  certs.Role // a grant of
	}{
		{pb.Percolator_CreateTable_FullMethodName, func(name string) proto.Message {
			return &pb.CreateTableRequest{Name: name}
		}, certs.Reader},
		{pb.Percolator_CreateTable_FullMethodName, func(name string) proto.Message {
			return &pb.CreateTableRequest{Name: name, SplitKeys: [][]byte{[]byte("k")}}
		}, certs.Writer},
		{pb.Admin_Backfill_FullMethodName, func(name string) proto.Message {
			return &pb.BackfillRequest{Name: name}
		}, certs.Reader},
		{pb.Admin_Backfill_FullMethodName, func(name string) proto.Message {
			return &pb.BackfillRequest{Name: name, Action: pb.BackfillRequest_ACTION_START}
		}, certs.Writer},
		{pb.Admin_Backfill_FullMethodName, func(name string) proto.Message {
			return &pb.BackfillRequest{Name: name, Action: pb.BackfillRequest_ACTION_CANCEL}
		}, certs.Writer},
		{pb.Admin_ReplayParked_FullMethodName, func(name string) proto.Message {
			return &pb.ReplayParkedRequest{Name: name}
		}, certs.Writer},
		{pb.Admin_ReplayRow_FullMethodName, func(name string) proto.Message {
			return &pb.ReplayRowRequest{Name: name, Row: []byte("r")}
		}, certs.Writer},
		{pb.Admin_ObserverRun_FullMethodName, func(name string) proto.Message {
			return &pb.ObserverRunRequest{Name: name, Row: []byte("r")}
		}, certs.Reader},
	} {
		for caller, grant := range map[string]certs.Role{
			"none": "", "reads": certs.Reader, "writes": certs.Writer,
		} {
			for _, role := range append(certs.ClientRoles(), certs.Node, certs.Client) {
				for _, name := range []string{"SECRET", "open", "gone"} {
					req, made := c.req(name), false
					_, err := guard.Call(t.Context(), Caller{Role: role, Name: caller}, c.method, req,
						func() (any, error) { made = true; return nil, nil })
					may := role.Includes(requiredRole(c.method, req)) &&
						(name != "SECRET" || role.Includes(certs.Operator) || grant.Includes(c.needs))
					// The service would list the existing observers.
					want := pb.Error_CODE_PERMISSION
					if _, table := req.(*pb.CreateTableRequest); may && name == "gone" && !table && grant == "" &&
						!role.Includes(certs.Operator) {
						may, want = false, pb.Error_CODE_INVALID
					}
					var refused *txn.ServerError
					if made != may || !may && (!errors.As(err, &refused) || refused.Code != want ||
						grant == "" && strings.Contains(refused.Message, "SECRET")) {
						t.Errorf("GRANT-IGNORED: %s %v of %s, a %s: made %v, %v", c.method, req, caller, role, made, err)
					}
				}
			}
		}
	}
}

// TestGrantsHideTheSchema: a client for which some table is hidden cannot read it in the cluster's
// own records, by any operation.
func TestGrantsHideTheSchema(t *testing.T) {
	guard, tried := guardOfTwo(), 0
	kinds := (&pb.TabletRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	for i := range kinds.Len() {
		req := about(kinds.Get(i), uint32(mvcc.MetaTable))
		if req == nil || wire.OperationOf(req).Clients != wire.AccessRead {
			continue
		}
		tried++
		for _, role := range append(certs.ClientRoles(), certs.Node, certs.Client) {
			for _, caller := range []string{"none", "reads"} {
				refused := guard.grants.refuse(Caller{Role: role, Name: caller}, req) != nil
				if refused != (caller == "none" && !role.Includes(certs.Operator)) {
					t.Errorf("GRANT-TOLD: %s, of %s, a %s: refused %v", kinds.Get(i).Name(), caller, role, refused)
				}
			}
		}
	}
	if tried < 6 {
		t.Errorf("%d operations were tried", tried)
	}
}

// TestHoldsAreByCallers: a hold for a backup belongs to the name in the certificate, whatever the
// request says.
func TestHoldsAreByCallers(t *testing.T) {
	req := &pb.HoldBackupRequest{Hold: &pb.BackupHold{Backup: "b", By: "eve"}}
	_, err := guardOfTwo().Call(t.Context(), Caller{Role: certs.Reader, Name: "ann"},
		pb.Admin_HoldBackup_FullMethodName, req, func() (any, error) { return nil, nil })
	if err != nil || req.Hold.By != "ann" {
		t.Errorf("HOLD-BY: %v, %v", req, err)
	}
}

// TestColumnsOfHiddenTables: the columns read and written by a run are listed without those of
// hidden tables.
func TestColumnsOfHiddenTables(t *testing.T) {
	run := &pb.ObserverRunResponse{Run: &pb.ObserverRun{
		Read:  []*pb.TableColumn{{Table: "SECRET", Column: []byte("c")}, {Table: "open"}},
		Wrote: []*pb.TableColumn{{Table: "SECRET"}},
	}}
	m, refused := visibilityFilter{7: "SECRET"}.narrow(&pb.ObserverRunRequest{}, run)
	if told, ok := m.(*pb.ObserverRunResponse); !ok || refused != nil || len(told.Run.Read) != 1 || len(told.Run.Wrote) != 0 {
		t.Errorf("TOLD: %v, %v", m, refused)
	}
}
