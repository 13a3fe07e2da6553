package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/wire"
)

// This file says which role each call and each operation takes, and keeps from them who
// has a lesser one. authInterceptor is in front of every handler, on gRPC's goroutines; what
// an operation takes is looked at by the stream's workers. It keeps nothing.

// access is what one call takes.
type access struct {
	role certs.Role // the least one
	// asks reports whether the request changes nothing, or nothing of others: then Reader is
	// enough. nil: role is needed for every request.
	asks func(req any) bool
	// audited rows are for the audit log though writers may call them; quiet ones are not,
	// unless they are refused, though they take an operator: there are very many.
	audited, quiet bool
}

// calls has a row for each method of the services for clients. One that has none is for
// operators alone (see takes), and a test fails.
var calls = map[string]access{
	// Each operation on a tablet takes a role of its own: operationRoles.
	pb.Percolator_Operations_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Timestamps_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Locate_FullMethodName:       {role: certs.Reader},
	pb.Percolator_Tables_FullMethodName:       {role: certs.Reader},
	pb.Percolator_GetCatalogue_FullMethodName: {role: certs.Reader},
	pb.Percolator_WorkerDead_FullMethodName:   {role: certs.Reader},
	pb.Percolator_NodeStatus_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Observers_FullMethodName:    {role: certs.Reader},
	// A snapshot that is read for long holds its history.
	pb.Percolator_HoldHistory_FullMethodName: {role: certs.Reader},
	// Programs make the tables that they write to; what is there stays as it is.
	pb.Percolator_CreateTable_FullMethodName: {role: certs.Writer, audited: true},
	pb.Percolator_DropTable_FullMethodName:   {role: certs.Operator},
	pb.Percolator_SplitTablet_FullMethodName: {role: certs.Operator},

	pb.Admin_Nodes_FullMethodName:           {role: certs.Reader},
	pb.Admin_DescribeTablet_FullMethodName:  {role: certs.Reader},
	pb.Admin_ClusterStatus_FullMethodName:   {role: certs.Reader},
	pb.Admin_Backfill_FullMethodName:        {role: certs.Observer, asks: asksBackfill},
	pb.Admin_ClusterPolicy_FullMethodName:   {role: certs.Operator, asks: asksPolicy},
	pb.Admin_ControlObserver_FullMethodName: {role: certs.Operator},
	pb.Admin_DrainNode_FullMethodName:       {role: certs.Operator},
	pb.Admin_ForgetNode_FullMethodName:      {role: certs.Operator},
	pb.Admin_FinalizeUpgrade_FullMethodName: {role: certs.Operator},
	pb.Admin_MoveTablet_FullMethodName:      {role: certs.Operator},
	pb.Admin_MergeTablets_FullMethodName:    {role: certs.Operator},
	pb.Admin_SetLogLevel_FullMethodName:     {role: certs.Operator},
	pb.Admin_DescribeProcess_FullMethodName: {role: certs.Operator},
	pb.Admin_CreateToken_FullMethodName:     {role: certs.Operator},
	pb.Admin_Tokens_FullMethodName:          {role: certs.Operator},
	pb.Admin_RevokeToken_FullMethodName:     {role: certs.Operator},
	pb.Admin_SetGrant_FullMethodName:        {role: certs.Operator},
	// Names and addresses of others, and what they do. It is asked every few seconds.
	pb.Admin_Clients_FullMethodName:          {role: certs.Operator, quiet: true},
	pb.Admin_DisconnectClient_FullMethodName: {role: certs.Operator},
	pb.Admin_Grants_FullMethodName:           {role: certs.Reader},
	// A writer can do what it does by itself, one row after the other.
	pb.Admin_ReplayParked_FullMethodName: {role: certs.Writer, audited: true},
	pb.Admin_ReplayRow_FullMethodName:    {role: certs.Writer, audited: true},
	// It changes nothing, but reads all of a tablet on each of its replicas.
	pb.Admin_VerifyTablet_FullMethodName:   {role: certs.Operator},
	pb.Admin_RestoreTable_FullMethodName:   {role: certs.Operator},
	pb.Admin_FinishRecovery_FullMethodName: {role: certs.Operator},
	pb.Admin_RestoreCells_FullMethodName:   {role: certs.Operator, quiet: true},
	// Who may read all that there is may tell how far the copy has come, and hold history for
	// the next one.
	pb.Admin_ReportJob_FullMethodName:  {role: certs.Reader},
	pb.Admin_HoldBackup_FullMethodName: {role: certs.Operator, asks: asksHold, audited: true},

	pb.Admin_PendingNotifications_FullMethodName: {role: certs.Operator, quiet: true},

	pb.Admin_BackupSchedules_FullMethodName: {role: certs.Operator, asks: asksSchedules},
}

func asksBackfill(req any) bool {
	r, ok := req.(*pb.BackfillRequest)
	return ok && r.Action == pb.BackfillRequest_ACTION_READ
}

// asksHold: a hold ends by the token that it was made with.
func asksHold(req any) bool {
	r, ok := req.(*pb.HoldBackupRequest)
	return ok && !slices.ContainsFunc(r.GetRelease(), func(h *pb.BackupHold) bool {
		return len(h.GetToken()) == 0
	})
}

func asksSchedules(req any) bool {
	r, ok := req.(*pb.BackupSchedulesRequest)
	return ok && r.Set == nil && r.Remove == "" && r.Run == ""
}

func asksPolicy(req any) bool {
	r, ok := req.(*pb.ClusterPolicyRequest)
	return ok && r.Set == nil
}

// operationRoles is the least role for an operation on a tablet, by what its row in
// internal/wire says that clients may do with it. What has no row here takes Operator;
// what is for nodes only is refused to all clients (admit.go).
var operationRoles = map[wire.Access]certs.Role{
	wire.AccessRead:   certs.Reader,
	wire.AccessAsk:    certs.Reader,
	wire.AccessSettle: certs.Writer,
	wire.AccessChange: certs.Writer,
}

// The methods of the two services for clients begin with these.
var (
	percolatorMethods = "/" + pb.Percolator_ServiceDesc.ServiceName + "/"
	adminMethods      = "/" + pb.Admin_ServiceDesc.ServiceName + "/"
)

// public reports whether clients may call the method at all. What ServerConfig.Register
// adds is for nodes.
func public(method string) bool {
	return strings.HasPrefix(method, percolatorMethods) || strings.HasPrefix(method, adminMethods)
}

// takes is the least role for the call. req is nil for streams.
func takes(method string, req any) certs.Role {
	row, ok := calls[method]
	switch {
	case !public(method):
		return certs.Node
	case !ok:
		return certs.Operator
	case row.asks != nil && row.asks(req):
		return certs.Reader
	}
	return row.role
}

// Caller is who makes a call.
type Caller struct {
	Role certs.Role
	Name string
	By   string // what says so: ByCertificate and others
	From string // the address

	cert *x509.Certificate // nil: by other means
}

// How a caller is known: by its certificate, by its token of the console, or not at all, in
// clear text.
const (
	ByCertificate = "certificate"
	ByToken       = "token"
	ByNothing     = "plain text"
)

// callerOf is who makes the call. In clear text everybody is everything, which is why that
// needs to be asked for.
func callerOf(ctx context.Context, cfg *ServerConfig) (Caller, error) {
	c := Caller{Role: certs.Node, By: ByNothing}
	p, ok := peer.FromContext(ctx)
	if ok {
		c.From = p.Addr.String()
	}
	if cfg.TLS == nil {
		return c, nil
	}
	if ok {
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if ok && len(info.State.PeerCertificates) > 0 {
			c.cert, c.By = info.State.PeerCertificates[0], ByCertificate
			c.Role, c.Name = certs.Identity(c.cert)
			return c, c.stillSound(ctx, cfg)
		}
	}
	return Caller{}, status.Error(codes.Unauthenticated, "percolator: no certificate")
}

// identity returns the name in the certificate or of the token, and in plain text the host that
// the call comes from.
func (c *Caller) identity() string {
	if c.By != ByNothing {
		return c.Name
	}
	if host, _, err := net.SplitHostPort(c.From); err == nil {
		return host
	}
	return c.From
}

// boundedAs returns the identity that bounds of clients go by. It is empty for operators and
// nodes, which are not bounded.
func (c *Caller) boundedAs() string {
	if c.By != ByNothing && c.Role.Includes(certs.Operator) {
		return ""
	}
	return c.identity()
}

// stillSound returns an error if the caller's certificate was revoked. A connection that was admitted
// before ends; another one stays pending, so that its client is told why it is refused.
func (c Caller) stillSound(ctx context.Context, cfg *ServerConfig) error {
	if c.cert == nil || cfg.Revoked == nil || !cfg.Revoked(c.cert) {
		return nil
	}
	if conn := connection(ctx); conn != nil && conn.Admitted() {
		cfg.Logger.Warn("a connection ends: its certificate was revoked", "name", c.Name,
			"serial", certs.Serial(c.cert), "from", c.From)
		_ = conn.Close()
	}
	return status.Error(codes.Unauthenticated, "percolator: this certificate was revoked by its authority: ask for another one")
}

// refuse returns why the caller may not do something that takes a role, nil if it may. An
// empty role is Operator: what nobody has thought of is for operators.
func (c Caller) refuse(what string, role certs.Role) *pb.Error {
	if role == "" {
		role = certs.Operator
	}
	if c.Role.Includes(role) {
		return nil
	}
	if c.By == ByToken {
		return &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: fmt.Sprintf(
			"%s takes the role %s, and the token %q has the role %s: use one that `percolator "+
				"token create NAME --role %s` has made", what, role, c.Name, c.Role, role)}
	}
	return &pb.Error{Code: pb.Error_CODE_PERMISSION, Message: fmt.Sprintf(
		"%s takes the role %s, and the certificate of %q has the role %s: use one that "+
			"`percolator cert create-client NAME --role %s --ca-dir CA` has made", what, role, c.Name, c.Role, role)}
}

// refuseOperation returns why the caller may not do the operation, nil if it may. It may
// make the operation of a reader weaker.
func (c Caller) refuseOperation(req *pb.TabletRequest) *pb.Error {
	op := wire.OperationOf(req)
	if op.Clients == wire.AccessNone { // admit says so better
		return nil
	}
	if e := c.refuse("the operation "+op.Name, operationRoles[op.Clients]); e != nil {
		return e
	}
	// Readers ask what has become of a transaction whose lock they have met. A lock that
	// has expired by the oracle's time ends by that; their word that its worker is dead, or
	// that it has waited for long enough, would end others' transactions.
	check := req.GetCheckTxnStatus()
	if check != nil && !c.Role.Includes(certs.Writer) {
		weaken(req, check)
	}
	return nil
}

// weaken has a question for what became of a transaction end only what has expired.
func weaken(req *pb.TabletRequest, check *pb.CheckTxnStatusRequest) {
	// A copy: the message of an earlier attempt may be on its way yet.
	req.Op = &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: &pb.CheckTxnStatusRequest{
		Primary: check.Primary, StartTs: check.StartTs, Now: check.Now,
		MetExpiry: math.MaxUint64,
	}}
}

// authInterceptor stands in front of all handlers of a server.
type authInterceptor struct {
	cfg   ServerConfig
	guard *Guard
}

// call has the call made if its caller may.
func (e *authInterceptor) call(ctx context.Context, method string, req any,
	do func() (any, error)) (any, error) {
	who, err := callerOf(ctx, &e.cfg)
	if err != nil {
		return nil, err
	}
	if conn := connection(ctx); conn != nil && conn.caller.Load() == nil {
		conn.caller.Store(&who)
	}
	defer e.cfg.LegacyCerts.call(who, e.cfg.Logger, time.Now)()
	resp, err := e.guard.Call(ctx, who, method, req, do)
	if refusal, ok := errors.AsType[*txn.ServerError](err); ok { // the handlers' own errors are statuses already
		err = toStatus(refusal)
	}
	return resp, err
}

// unary checks unary calls.
func (e *authInterceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	return e.call(ctx, info.FullMethod, req, func() (any, error) { return handler(ctx, req) })
}

// stream checks streams.
func (e *authInterceptor) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	_, err := e.call(stream.Context(), info.FullMethod, nil, func() (any, error) {
		return nil, handler(srv, stream)
	})
	return err
}
