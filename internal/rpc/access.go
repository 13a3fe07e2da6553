package rpc

import (
	"context"
	"crypto/x509"
	"errors"
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

// Roles required by calls and operations. authInterceptor checks each call before its handler,
// on gRPC's goroutines; a stream's workers check each operation. There is no state.

// access is the permission that one call requires.
type access struct {
	role certs.Role // the minimum role
	// asks reports whether the request changes nothing, or only state of its own caller; then
	// Reader suffices. If asks is nil, every request requires role.
	asks func(req any) bool
	// audited calls are written to the audit log although writers or readers may make them. quiet
	// calls require more than Writer but are logged only if refused, because they are frequent or
	// last long.
	audited, quiet bool
}

// calls has an entry for each method of the services for clients. A method without an entry
// requires Operator (see requiredRole), and a test fails.
var calls = map[string]access{
	// Each operation on a tablet requires its own role: see operationRoles.
	pb.Percolator_Operations_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Timestamps_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Locate_FullMethodName:       {role: certs.Reader},
	pb.Percolator_Tables_FullMethodName:       {role: certs.Reader},
	pb.Percolator_GetCatalogue_FullMethodName: {role: certs.Reader},
	pb.Percolator_WorkerDead_FullMethodName:   {role: certs.Reader},
	pb.Percolator_NodeStatus_FullMethodName:   {role: certs.Reader},
	pb.Percolator_Observers_FullMethodName:    {role: certs.Reader},
	// A worker also writes acknowledgments. A session lasts, so it is not audited as an act.
	pb.Percolator_Work_FullMethodName: {role: certs.Observer, quiet: true},
	// A reader's long-lived snapshot holds its history.
	pb.Percolator_HoldHistory_FullMethodName: {role: certs.Reader},
	// Programs create the tables that they write to; existing tables only get split keys.
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
	// It returns other clients' names, addresses and activity. Consoles poll it every few
	// seconds.
	pb.Admin_Clients_FullMethodName:          {role: certs.Operator, quiet: true},
	pb.Admin_DisconnectClient_FullMethodName: {role: certs.Operator},
	pb.Admin_Grants_FullMethodName:           {role: certs.Reader},
	// A writer can do the same row by row.
	pb.Admin_ReplayParked_FullMethodName: {role: certs.Writer, audited: true},
	pb.Admin_ReplayRow_FullMethodName:    {role: certs.Writer, audited: true},
	pb.Admin_ObserverRun_FullMethodName:  {role: certs.Reader},
	// It changes nothing, but reads the whole tablet on each replica.
	pb.Admin_VerifyTablet_FullMethodName:   {role: certs.Operator},
	pb.Admin_RestoreTable_FullMethodName:   {role: certs.Operator},
	pb.Admin_SetTableExpiry_FullMethodName: {role: certs.Operator},
	pb.Admin_FinishRecovery_FullMethodName: {role: certs.Operator},
	pb.Admin_RestoreCells_FullMethodName:   {role: certs.Operator, quiet: true},
	// A reader of all tables may report the progress of its export, and hold history for the
	// next one.
	pb.Admin_ReportJob_FullMethodName:  {role: certs.Reader},
	pb.Admin_HoldBackup_FullMethodName: {role: certs.Operator, asks: asksHold, audited: true},

	pb.Admin_PendingNotifications_FullMethodName: {role: certs.Operator, quiet: true},

	pb.Admin_BackupSchedules_FullMethodName: {role: certs.Operator, asks: asksSchedules},
}

func asksBackfill(req any) bool {
	r, ok := req.(*pb.BackfillRequest)
	return ok && r.Action == pb.BackfillRequest_ACTION_READ
}

// asksHold reports true unless the request ends a hold without the token of its creation, which
// only an operator may do.
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

// operationRoles is the minimum role for an operation on a tablet, by its client access in
// internal/wire. An access without an entry requires Operator; operations for nodes only are
// refused to all clients (admit.go).
var operationRoles = map[wire.Access]certs.Role{
	wire.AccessRead:   certs.Reader,
	wire.AccessAsk:    certs.Reader,
	wire.AccessSettle: certs.Writer,
	wire.AccessChange: certs.Writer,
	// For workers only (Caller.works).
	wire.AccessObserve: certs.Observer,
}

// Prefixes of the methods of the two services for clients.
var (
	percolatorMethods = "/" + pb.Percolator_ServiceDesc.ServiceName + "/"
	adminMethods      = "/" + pb.Admin_ServiceDesc.ServiceName + "/"
)

// public reports whether the method belongs to a service for clients. Services added by
// ServerConfig.Register are for nodes.
func public(method string) bool {
	return strings.HasPrefix(method, percolatorMethods) || strings.HasPrefix(method, adminMethods)
}

// requiredRole returns the minimum role for the call. req is nil for streams.
func requiredRole(method string, req any) certs.Role {
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

// Caller identifies the client that makes a call.
type Caller struct {
	Role certs.Role
	Name string
	By   string // how it was identified: ByCertificate and others
	From string // remote address

	cert     *x509.Certificate // nil: identified by other means
	outcomes bool              // set by Local: the caller may use OutcomesTable in any role
	// works reports whether the operations of the caller's stream are a worker's, which may write
	// acknowledgments.
	works bool
}

// How a caller is identified: by its certificate, by its console token, or not at all, in
// plain text.
const (
	ByCertificate = "certificate"
	ByToken       = "token"
	ByNothing     = "plain text"
)

// callerOf returns the caller of the call. In plain text every caller has every role, which is
// why plain text must be requested explicitly.
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
			return c, c.checkRevoked(ctx, cfg)
		}
	}
	return Caller{}, status.Error(codes.Unauthenticated, "the client has no certificate")
}

// identity returns the name in the certificate or of the token; in plain text it returns the
// remote host.
func (c *Caller) identity() string {
	if c.By != ByNothing {
		return c.Name
	}
	return hostOf(c.From)
}

// hostOf returns the host of a remote address.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// boundedAs returns the identity to which limits of clients apply. It is empty for operators
// and nodes, which are not limited; in plain text, where every caller has their roles, all are
// limited.
func (c *Caller) boundedAs() string {
	if c.By != ByNothing && c.Role.Includes(certs.Operator) {
		return ""
	}
	return c.identity()
}

// checkRevoked returns an error if the caller's certificate was revoked. It closes a
// connection admitted before; a pending one stays open, so that its client receives the error.
func (c Caller) checkRevoked(ctx context.Context, cfg *ServerConfig) error {
	if c.cert == nil || cfg.Revoked == nil || !cfg.Revoked(c.cert) {
		return nil
	}
	if conn := connection(ctx); conn != nil && conn.Admitted() {
		cfg.Logger.Warn("a connection ends: its certificate was revoked", "name", c.Name,
			"serial", certs.Serial(c.cert), "from", c.From)
		_ = conn.Close()
	}
	return status.Error(codes.Unauthenticated, "the client's certificate was revoked by its authority: use another one")
}

// refuse returns an error unless the caller has the required role. An empty role means Operator,
// so that methods without an entry are restricted to operators.
func (c Caller) refuse(what string, role certs.Role) *pb.Error {
	if role == "" {
		role = certs.Operator
	}
	if c.Role.Includes(role) {
		return nil
	}
	if c.By == ByToken {
		return errorOf(pb.Error_CODE_PERMISSION,
			"%s takes the role %s, and the token %q has the role %s: use one that "+
				"`percolator token create NAME --role %s` has made", what, role, c.Name, c.Role, role)
	}
	return errorOf(pb.Error_CODE_PERMISSION,
		"%s takes the role %s, and the certificate of %q has the role %s: use one that "+
			"`percolator cert create-client NAME --role %s --ca-dir CA` has made", what, role, c.Name, c.Role, role)
}

// refuseOperation returns an error unless the caller has the role for the operation, or admit
// refuses the operation anyway. It replaces a reader's status check by one that rolls back only an
// expired transaction.
func (c Caller) refuseOperation(req *pb.TabletRequest) *pb.Error {
	op := wire.OperationOf(req)
	// admit refuses these with a better message
	if op.Clients == wire.AccessNone || op.Clients == wire.AccessObserve && !c.works {
		return nil
	}
	if e := c.refuse("the operation "+op.Name, operationRoles[op.Clients]); e != nil {
		return e
	}
	// Readers check the status of a transaction whose lock they have encountered. That rolls
	// back a lock that has expired by the oracle's time. A reader's claim that the worker is dead,
	// or that the expiry has passed, must not be trusted: it could end other clients' transactions.
	check := req.GetCheckTxnStatus()
	if check != nil && !c.Role.Includes(certs.Writer) {
		weaken(req, check)
	}
	return nil
}

// weaken makes a status check roll back only a transaction that has expired by the oracle's
// time.
func weaken(req *pb.TabletRequest, check *pb.CheckTxnStatusRequest) {
	// Copy: the message of an earlier attempt may still be in flight.
	req.Op = &pb.TabletRequest_CheckTxnStatus{CheckTxnStatus: &pb.CheckTxnStatusRequest{
		Primary: check.Primary, StartTs: check.StartTs, Now: check.Now,
		MetExpiry: math.MaxUint64,
	}}
}

// authInterceptor checks every call of a server before its handler.
type authInterceptor struct {
	cfg   ServerConfig
	guard *Guard
}

// call makes the call if its caller is allowed to, and returns a panic of its handler as an error. Operations
// recovers those of its own goroutines.
func (e *authInterceptor) call(ctx context.Context, method string, req any,
	do func() (any, error)) (resp any, err error) {
	defer recovered(e.cfg.Logger, method, &err)
	who, err := callerOf(ctx, &e.cfg)
	if err != nil {
		return nil, err
	}
	if conn := connection(ctx); conn != nil && conn.caller.Load() == nil {
		conn.caller.Store(&who)
	}
	defer e.cfg.LegacyCerts.call(who, e.cfg.Logger, time.Now)()
	resp, err = e.guard.Call(ctx, who, method, req, do)
	if refusal, ok := errors.AsType[*txn.ServerError](err); ok { // handlers' errors already are statuses
		err = toStatus(refusal)
	}
	return resp, err
}

// unary checks unary calls.
func (e *authInterceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	return e.call(ctx, info.FullMethod, req, func() (any, error) { return handler(ctx, req) })
}

// stream is the interceptor that checks the callers of streams.
func (e *authInterceptor) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	_, err := e.call(stream.Context(), info.FullMethod, nil, func() (any, error) {
		return nil, handler(srv, stream)
	})
	return err
}
