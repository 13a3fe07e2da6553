package rpc

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/wire"
)

// about returns a request of the kind on a table's rows.
func about(kind protoreflect.FieldDescriptor, table uint32) *pb.TabletRequest {
	cell := &pb.Cell{Table: table, Row: []byte("r"), Column: []byte("c")}
	req := &pb.TabletRequest{TabletId: 1}
	m := req.ProtoReflect()
	m.Set(kind, protoreflect.ValueOfMessage(m.NewField(kind).Message()))
	switch op := req.Op.(type) {
	case *pb.TabletRequest_Get:
		op.Get.Cells = []*pb.Cell{cell}
	case *pb.TabletRequest_Scan:
		op.Scan.Span = &pb.Span{Table: table}
	case *pb.TabletRequest_RawGet:
		op.RawGet.Cells = []*pb.Cell{cell}
	case *pb.TabletRequest_RawScan:
		op.RawScan.Span = &pb.Span{Table: table}
	case *pb.TabletRequest_Changes:
		op.Changes.Span = &pb.Span{Table: table}
	case *pb.TabletRequest_Walk:
		op.Walk.Table = table
	case *pb.TabletRequest_History:
		op.History.Table = table
	case *pb.TabletRequest_Prewrite:
		op.Prewrite.Writes, op.Prewrite.Primary = []*pb.CellWrite{{Cell: cell}}, &pb.Cell{Table: 99}
	case *pb.TabletRequest_OnePhase:
		op.OnePhase.Notifies = []*pb.Cell{cell}
	case *pb.TabletRequest_Commit:
		op.Commit.Intents = []*pb.Cell{cell}
	case *pb.TabletRequest_Rollback:
		op.Rollback.Cells = []*pb.Cell{cell}
	case *pb.TabletRequest_ResolveLock:
		op.ResolveLock.Cells = []*pb.Cell{cell}
	case *pb.TabletRequest_Heartbeat:
		op.Heartbeat.Primary = cell
	case *pb.TabletRequest_Notify:
		op.Notify.Cells = []*pb.Cell{cell}
	case *pb.TabletRequest_ClearNotify:
		op.ClearNotify.Cell = cell
	case *pb.TabletRequest_FailNotify:
		op.FailNotify.Cell = cell
	case *pb.TabletRequest_CheckTxnStatus:
		op.CheckTxnStatus.Primary, op.CheckTxnStatus.WorkerDead = cell, true
	default:
		return nil
	}
	return req
}

// TestGrantsNarrowRoles: every operation on the rows of a table with grants, by every role, with
// every grant: both are required. Tables without grants, operators and nodes are unaffected.
// Without a grant, another's transaction cannot be ended.
func TestGrantsNarrowRoles(t *testing.T) {
	policy := &pb.Policy{Grants: []*pb.Grant{
		{Table: 20, TableName: "t", Name: "reads", Role: "reader"},
		{Table: 20, TableName: "t", Name: "writes", Role: "writer"},
		{Table: 21, TableName: "u", Name: "none", Role: "writer"},
	}}
	g := grants{read: func() (*pb.Policy, time.Time) { return policy, time.Now() }}
	called := map[certs.Role]string{certs.Reader: "t`", certs.Writer: "t`", "": "NAME`"}
	granted := map[string]certs.Role{"reads": certs.Reader, "writes": certs.Writer, "none": ""}
	kinds, tried := (&pb.TabletRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields(), 0
	for i := range kinds.Len() {
		kind := kinds.Get(i)
		if about(kind, 20) == nil {
			req := &pb.TabletRequest{}
			m := req.ProtoReflect()
			m.Set(kind, protoreflect.ValueOfMessage(m.NewField(kind).Message()))
			name := wire.OperationOf(req).Name
			if wire.OperationOf(req).Clients != wire.AccessNone && name != "status" && name != "pending" &&
				name != "raw_write" {
				t.Errorf("%s is not tried", name)
			}
			continue
		}
		tried++
		for name, grant := range granted {
			for _, role := range append(certs.ClientRoles(), certs.Node, certs.Client) {
				who, req := Caller{Role: role, Name: name}, about(kind, 20)
				needs := operationRoles[wire.OperationOf(req).Clients]
				if needs == certs.Observer { // no grant is for more than writing
					needs = certs.Writer
				}
				all := role.Includes(certs.Operator)
				refused := g.refuse(who, req)
				switch check := req.GetCheckTxnStatus(); {
				case check != nil:
					if refused != nil || check.WorkerDead != (all || grant == certs.Writer) {
						t.Errorf("GRANT-IGNORED: %s of %s, a %s: %v, %v", kind.Name(), name, role, check, refused)
					}
				case (refused == nil) != (all || grant.Includes(needs)):
					t.Errorf("GRANT-IGNORED: %s of %s, a %s: %v", kind.Name(), name, role, refused)
				case refused != nil && (refused.Code != pb.Error_CODE_PERMISSION || !strings.Contains(
					refused.Message, "percolator grant "+string(needs)+" "+name+" --table "+called[grant])):
					t.Errorf("GRANT-TOLD: %v", refused)
				}
				if e := g.refuse(who, about(kind, 22)); e != nil {
					t.Errorf("a table without grants: %s: %v", kind.Name(), e)
				}
			}
		}
	}
	if tried < 14 {
		t.Errorf("%d kinds of operations were tried", tried)
	}
}

// TestGrantsGrowOld: a node that has not read the grants for long refuses operations on tables that
// have some, until it has read them again; a newer policy applies at once.
func TestGrantsGrowOld(t *testing.T) {
	one := &pb.Policy{Grants: []*pb.Grant{{Table: 20, TableName: "t", Name: "ann", Role: "reader"}}}
	policy, at := one, time.Now()
	g := grants{read: func() (*pb.Policy, time.Time) { return policy, at }}
	code := func(name string, table uint32) pb.Error_Code {
		return g.refuse(Caller{Role: certs.Writer, Name: name}, &pb.TabletRequest{
			Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{Span: &pb.Span{Table: table}}},
		}).GetCode()
	}
	const ok, denied = pb.Error_CODE_UNSPECIFIED, pb.Error_CODE_PERMISSION
	if code("ann", 20) != ok || code("bob", 20) != denied || code("bob", 21) != ok {
		t.Error(code("ann", 20), code("bob", 20), code("bob", 21))
	}
	at = at.Add(-2 * grantsAge)
	if code("ann", 20) != pb.Error_CODE_UNAVAILABLE || code("ann", 21) != ok {
		t.Error("GRANT-STALE: ", code("ann", 20), code("ann", 21))
	}
	policy, at = &pb.Policy{}, time.Now()
	if code("bob", 20) != ok {
		t.Error(code("bob", 20))
	}
}

// TestGrantsOverTheNetwork: the name in the certificate counts, for every operation on an open
// stream.
func TestGrantsOverTheNetwork(t *testing.T) {
	dir, policy := grantsFolder(t)
	var known atomic.Pointer[pb.Policy]
	known.Store(&pb.Policy{})
	clients := roleClients(t, dir, securedWith(t, dir, ServerConfig{
		Policy: func() (*pb.Policy, time.Time) { return known.Load(), time.Now() },
	}))
	scan := func(role certs.Role) pb.Error_Code {
		t.Helper()
		resp, err := clients[role].Send(t.Context(), nil, &pb.TabletRequest{TabletId: 2,
			Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{Span: &pb.Span{Table: 16}}}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetError().GetCode()
	}
	for _, granted := range []bool{false, true, false} {
		known.Store(&pb.Policy{})
		if granted {
			known.Store(policy)
		}
		for role := range clients {
			refused := scan(role) == pb.Error_CODE_PERMISSION
			if refused != (granted && !role.Includes(certs.Operator)) {
				t.Errorf("GRANT-IGNORED: a %s, with grants for others %v: refused %v", role, granted, refused)
			}
		}
	}
}

func grantsFolder(t *testing.T) (dir string, policy *pb.Policy) {
	return certstest.Folder(t, "127.0.0.1"), &pb.Policy{Grants: []*pb.Grant{
		{Table: 16, TableName: "t", Name: "bob", Role: "writer"}, // the clients are ann's
	}}
}
