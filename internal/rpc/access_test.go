package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/mvcc"
	"github.com/percolator-go/percolator/internal/txn"
)

// leastRoles is each method's minimum role, written independently: a change of a row of calls must
// be repeated here.
var leastRoles = map[string]certs.Role{
	"Operations": certs.Reader, "Timestamps": certs.Reader, "Locate": certs.Reader,
	"CreateTable": certs.Writer, "DropTable": certs.Operator, "Tables": certs.Reader,
	"GetCatalogue": certs.Reader, "WorkerDead": certs.Reader, "SplitTablet": certs.Operator,
	"NodeStatus": certs.Reader, "Observers": certs.Reader, "HoldHistory": certs.Reader,
	"Work": certs.Observer,

	"ControlObserver": certs.Operator, "Nodes": certs.Reader, "DrainNode": certs.Operator,
	"MoveTablet": certs.Operator, "MergeTablets": certs.Operator, "DescribeTablet": certs.Reader, "VerifyTablet": certs.Operator,
	"ForgetNode": certs.Operator, "RestoreTable": certs.Operator, "SetTableExpiry": certs.Operator, "RestoreCells": certs.Operator,
	"ClusterStatus": certs.Reader, "ReportJob": certs.Reader, "SetLogLevel": certs.Operator,
	"DescribeProcess": certs.Operator,
	"CreateToken":     certs.Operator, "Tokens": certs.Operator, "RevokeToken": certs.Operator,
	"ReplayParked": certs.Writer, "ReplayRow": certs.Writer, "ObserverRun": certs.Reader, "FinalizeUpgrade": certs.Operator,
	"FinishRecovery": certs.Operator,
	"Clients":        certs.Operator, "DisconnectClient": certs.Operator,
	"SetGrant": certs.Operator, "Grants": certs.Reader,
	// Empty requests only read.
	"Backfill": certs.Reader, "ClusterPolicy": certs.Reader, "HoldBackup": certs.Reader,
	"BackupSchedules": certs.Reader, "PendingNotifications": certs.Operator,
}

// roleClients returns a client of each role of a server with certificates, among them one from
// before there were roles.
func roleClients(t *testing.T, dir, addr string) map[certs.Role]*Client {
	t.Helper()
	clients := map[certs.Role]*Client{}
	add := func(role certs.Role, source certs.Source) {
		cfg := ClientConfig{CertFile: source.Cert, KeyFile: source.Key, CAFile: source.CA}
		c, err := Dial(t.Context(), []string{addr}, cfg)
		if err != nil {
			t.Fatal(role, err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		clients[role] = c
	}
	for _, role := range certs.ClientRoles() {
		own := t.TempDir()
		if _, err := certs.CreateClient(certs.Request{Dir: own, CA: dir, Name: "ann",
			Role: role}); err != nil {
			t.Fatal(err)
		}
		add(role, certs.ClientSource(own))
	}
	add(certs.Client, certs.ClientSource(certstest.OldClient(t, dir)))
	add(certs.Node, certs.NodeSource(dir))
	return clients
}

// methods calls f with each method of the services for clients and an empty request.
func methods(t *testing.T, f func(name, full string, request, response proto.Message)) {
	t.Helper()
	message := func(d protoreflect.MessageDescriptor) proto.Message {
		m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return m.New().Interface()
	}
	for _, service := range []protoreflect.ServiceDescriptor{
		pb.File_percolator_v1_service_proto.Services().ByName("Percolator"),
		pb.File_percolator_v1_admin_proto.Services().ByName("Admin"),
	} {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			f(string(m.Name()), "/"+string(service.FullName())+"/"+string(m.Name()),
				message(m.Input()), message(m.Output()))
		}
	}
}

// checkAccess reports whether a call was admitted according to its minimum role.
func checkAccess(t *testing.T, role, least certs.Role, what string, err error) {
	t.Helper()
	may := role.Includes(least)
	var refusal *txn.ServerError
	refused := errors.As(err, &refusal) && refusal.Code == pb.Error_CODE_PERMISSION
	switch {
	case may && refused:
		t.Errorf("%s, who is a %s, is refused: %v", what, role, err)
	case !may && !refused:
		t.Errorf("ROLE-IGNORED: %s takes the role %s, and with %s it was answered %v", what, least,
			role, err)
	case refused && (!strings.Contains(err.Error(), "takes the role "+string(least)) ||
		!strings.Contains(err.Error(), `of "ann" has the role `+string(role)) ||
		!strings.Contains(err.Error(), "create-client NAME --role "+string(least))):
		t.Errorf("%s: the refusal does not state what is needed: %v", what, err)
	}
}

// TestEachCallTakesItsRole: every method has a row, and over real connections every role may call
// those of its own or a lower role, and no other.
func TestEachCallTakesItsRole(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	addr := secured(t, dir, nil, nil)
	clients := roleClients(t, dir, addr)
	methods(t, func(name, full string, request, response proto.Message) {
		if _, ok := calls[full]; !ok {
			t.Errorf("%s has no row in calls", full)
		}
		least, ok := leastRoles[name]
		if !ok {
			t.Errorf("%s has no row in this test", full)
		}
		if name == "Operations" { // a stream: see TestEachOperationTakesItsRole
			return
		}
		for role, c := range clients {
			err := fromStatus(c.link().conn.Invoke(t.Context(), full, request, response))
			checkAccess(t, role, least, name, err)
		}
	})
	admin := func(c *Client) pb.AdminClient { return pb.NewAdminClient(c.AdminConn()) }
	for role, c := range clients {
		_, err := admin(c).Backfill(t.Context(),
			&pb.BackfillRequest{Action: pb.BackfillRequest_ACTION_START})
		checkAccess(t, role, certs.Observer, "Backfill", err)
		_, err = admin(c).ClusterPolicy(t.Context(), &pb.ClusterPolicyRequest{Set: &pb.Policy{}})
		checkAccess(t, role, certs.Operator, "ClusterPolicy", err)
		for _, req := range []*pb.BackupSchedulesRequest{{Set: &pb.BackupSchedule{}}, {Remove: "s"}, {Run: "s"}} {
			_, err = admin(c).BackupSchedules(t.Context(), req)
			checkAccess(t, role, certs.Operator, "BackupSchedules", err)
		}
		_, err = admin(c).HoldBackup(t.Context(), &pb.HoldBackupRequest{
			Hold: &pb.BackupHold{Backup: "b"}, Release: []*pb.BackupHold{{Backup: "a", Token: []byte("t")}},
		})
		checkAccess(t, role, certs.Reader, "HoldBackup", err)
		_, err = admin(c).HoldBackup(t.Context(), &pb.HoldBackupRequest{
			Release: []*pb.BackupHold{{Backup: "a", Token: []byte("t")}, {Backup: "b"}},
		})
		checkAccess(t, role, certs.Operator, "HoldBackup", err)
		// A method that is neither registered nor known.
		err = fromStatus(c.link().conn.Invoke(t.Context(), adminMethods+"Nodes2",
			&pb.NodesRequest{}, &pb.NodesResponse{}))
		if err == nil {
			t.Errorf("%s: a method that does not exist was answered", role)
		}
	}
	for _, role := range certs.ClientRoles() {
		may := (Caller{Role: role}).refuse("Nodes2", requiredRole(adminMethods+"Nodes2", nil)) == nil
		if may != (role == certs.Operator) {
			t.Errorf("ROLE-IGNORED: a call without a row, to a %s: %v", role, may)
		}
	}
}

// TestEachOperationTakesItsRole: every kind of operation on a stream is refused to a role below its
// own, and admitted for all others.
func TestEachOperationTakesItsRole(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	clients := roleClients(t, dir, secured(t, dir, nil, nil))
	leastOf := map[string]certs.Role{
		"get": certs.Reader, "scan": certs.Reader, "raw_get": certs.Reader,
		"raw_scan": certs.Reader, "walk": certs.Reader, "history": certs.Reader,
		"pending": certs.Reader, "changes": certs.Reader, "status": certs.Reader, "check_txn_status": certs.Reader,
		"prewrite": certs.Writer, "commit": certs.Writer, "one_phase": certs.Writer,
		"rollback": certs.Writer, "resolve_lock": certs.Writer, "heartbeat": certs.Writer,
		"notify": certs.Writer,
		// For nodes only, and not over this service.
		"clear_notify": "", "fail_notify": "", "restore": "", "raw_write": "", "split": "",
		"set_catalogue": "", "merge": "", "mark": "", "collect": "", "change_replicas": "",
		"transfer_leader": "", "checksum": "",
	}
	kinds := (&pb.TabletRequest{}).ProtoReflect().Descriptor().Oneofs().ByName("op").Fields()
	for i := range kinds.Len() {
		kind := kinds.Get(i)
		least, ok := leastOf[string(kind.Name())]
		if !ok {
			t.Errorf("%s has no row in this test", kind.Name())
		}
		for role, c := range clients {
			req := &pb.TabletRequest{TabletId: 1}
			m := req.ProtoReflect()
			m.Set(kind, protoreflect.ValueOfMessage(m.NewField(kind).Message()))
			resp, err := c.Send(t.Context(), nil, req)
			if err != nil {
				t.Fatal(kind.Name(), err)
			}
			e := resp.GetError()
			if least == "" {
				if e.GetCode() != pb.Error_CODE_PERMISSION && e.GetCode() != pb.Error_CODE_INVALID {
					t.Errorf("ROLE-IGNORED: %s of a %s was answered %v", kind.Name(), role, resp)
				}
				continue
			}
			checkAccess(t, role, least, string(kind.Name()),
				&txn.ServerError{Code: e.GetCode(), Message: e.GetMessage()})
		}
	}
}

// lockedRows is a transaction of a writer whose two cells, in one tablet, are locked for an hour.
type lockedRows struct {
	*testing.T
	ctx                context.Context
	clients            map[certs.Role]*Client
	tablet             *pb.TabletDescriptor
	start              mvcc.Timestamp
	primary, secondary *pb.Cell
}

// lockRows prewrites the transaction.
func lockRows(ctx context.Context, t *testing.T, clients map[certs.Role]*Client) *lockedRows {
	t.Helper()
	l := &lockedRows{T: t, ctx: ctx, clients: clients, primary: cellOf("a"), secondary: cellOf("b")}
	l.start = l.timestamp(certs.Writer)
	tablets, err := clients[certs.Writer].Locate(ctx, mvcc.FirstUserTable, "", 1)
	if err != nil || len(tablets) != 1 {
		t.Fatal(tablets, err)
	}
	l.tablet = tablets[0]
	write := func(c *pb.Cell) *pb.CellWrite {
		return &pb.CellWrite{Cell: c, Kind: pb.Kind_KIND_PUT, Value: []byte("v")}
	}
	if resp := l.send(certs.Writer, &pb.TabletRequest{Op: &pb.TabletRequest_Prewrite{
		Prewrite: &pb.PrewriteRequest{
			StartTs: uint64(l.start), Primary: l.primary,
			Expiry: uint64(mvcc.TimestampAt(l.start.Millis() + time.Hour.Milliseconds())),
			Writes: []*pb.CellWrite{write(l.primary), write(l.secondary)},
		}}}); resp.GetError() != nil {
		t.Fatal(resp)
	}
	return l
}

// cellOf is a cell of a row of the first table.
func cellOf(row string) *pb.Cell {
	return &pb.Cell{Table: uint32(mvcc.FirstUserTable), Row: []byte(row), Column: []byte("c")}
}

func (l *lockedRows) timestamp(role certs.Role) mvcc.Timestamp {
	l.Helper()
	ts, _, err := l.clients[role].Timestamps(l.ctx, 1)
	if err != nil {
		l.Fatal(err)
	}
	return ts
}

func (l *lockedRows) send(role certs.Role, req *pb.TabletRequest) *pb.TabletResponse {
	l.Helper()
	req.TabletId, req.Epoch = l.tablet.TabletId, l.tablet.Epoch
	resp, err := l.clients[role].Send(l.ctx, l.tablet, req)
	if err != nil {
		l.Fatal(err)
	}
	return resp
}

// lives requires that the primary answers a reader that the transaction lives, although the reader
// claims that the worker is dead.
func (l *lockedRows) lives(primary *pb.Cell) {
	l.Helper()
	resp := l.send(certs.Reader, &pb.TabletRequest{Op: &pb.TabletRequest_CheckTxnStatus{
		CheckTxnStatus: &pb.CheckTxnStatusRequest{
			Primary: primary, StartTs: uint64(l.start), Now: uint64(l.timestamp(certs.Reader)),
			WorkerDead: true,
		}}})
	if resp.GetMutation().GetStatus() != pb.Status_STATUS_LIVE {
		l.Fatalf("READER-ENDED: a reader has ended the transaction of another: %v", resp)
	}
}

// commit commits a cell as the writer.
func (l *lockedRows) commit(c *pb.Cell, at mvcc.Timestamp) {
	l.Helper()
	if resp := l.send(certs.Writer, &pb.TabletRequest{Op: &pb.TabletRequest_Commit{
		Commit: &pb.CommitRequest{
			StartTs: uint64(l.start), CommitTs: uint64(at), Cells: []*pb.Cell{c},
		}}}); resp.GetError() != nil {
		l.Fatal(resp)
	}
}

// TestReadersEndNothing: a reader that encounters a lock queries its status, and its claim that the
// transaction is dead is ignored; the lock goes when another client ends the transaction, and then
// the reader reads.
func TestReadersEndNothing(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	clients := roleClients(t, dir, secured(t, dir, nil, nil))
	reading := txn.NewClient(clients[certs.Reader], txn.Config{})
	defer func() {
		if err := reading.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := lockRows(ctx, t, clients)
	l.lives(l.primary)
	l.lives(cellOf("never"))
	commit := l.timestamp(certs.Writer)
	l.commit(l.primary, commit)
	// The reader encounters the secondary's lock and may not roll it forward.
	read := make(chan error, 1)
	go func() {
		_, err := reading.Run(ctx, txn.Options{}, func(ctx context.Context, x *txn.Txn) error {
			v, _, err := x.Get(ctx, txn.Key{Table: "t", Row: "b", Column: "c"})
			if err == nil && string(v) != "v" {
				err = errors.New("it read " + string(v))
			}
			return err
		})
		read <- err
	}()
	for reading.Stats().RolledForward < 2 { // it has tried twice and continues
		select {
		case err := <-read:
			t.Fatal("the reader has not waited: ", err)
		case <-time.After(time.Millisecond):
		}
	}
	l.commit(l.secondary, commit)
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// TestOldClientsAreWarnedOf: a certificate without a role is an operator's; the log reports it once
// a day, and the node remembers it for a day after its last call.
func TestOldClientsAreWarnedOf(t *testing.T) {
	var log lockedLog
	var r LegacyCerts
	logger, now := slog.New(slog.NewTextHandler(&log, nil)), time.UnixMilli(1_000_000)
	call := func(role certs.Role, name string) (end func()) {
		return r.call(Caller{Role: role, Name: name}, logger, func() time.Time { return now })
	}
	for range 3 {
		call(certs.Client, "ann")()
		call(certs.Operator, "eve")()
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "name=ann") {
		t.Errorf("%q", got)
	}
	end := call(certs.Client, "stream")
	now = now.Add(legacyCertKept + time.Second)
	if got := r.Clients(now); len(got) != 1 || got[0] != (LegacyClient{"stream", now}) {
		t.Errorf("a day later: %v", got)
	}
	end()
	for i := range maxLegacyCerts + 1 {
		call(certs.Client, fmt.Sprint(i))()
	}
	for range 3 {
		call(certs.Client, "beyond")()
	}
	if got := r.Clients(now); len(got) != maxLegacyCerts {
		t.Errorf("%d names", len(got))
	}
	if got := log.String(); strings.Count(got, "counted=16") != 1 || strings.Contains(got, "name=beyond") {
		t.Errorf("names for which there is no space: %q", got)
	}
	now = now.Add(legacyCertKept + time.Second)
	if got := r.Clients(now); len(got) != 0 {
		t.Errorf("two days later: %v", got)
	}
}

// TestOldClientsAreKnown: a node lists each client whose certificate has no role.
func TestOldClientsAreKnown(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	var r LegacyCerts
	addr := securedWith(t, dir, ServerConfig{LegacyCerts: &r})
	for role, c := range roleClients(t, dir, addr) {
		if _, err := c.Tables(t.Context()); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
	if got := r.Clients(time.Now()); len(got) != 1 || got[0].Name != "ann" {
		t.Errorf("without a role: %v", got)
	}
}

// lockedLog is a log that a test reads.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
