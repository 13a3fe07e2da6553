package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	percolator "github.com/percolator-go/percolator"
	gw "github.com/percolator-go/percolator/api/gateway/v1"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node"
)

// gated is a node with certificates whose gateway is used by clients of each role.
type gated struct {
	*testing.T
	node  *node.Node
	certs string // the folder of the authority
	log   *lockedBuffer
}

func newGated(t *testing.T) *gated {
	g := &gated{T: t, certs: certstest.Folder(t, "127.0.0.1"), log: &lockedBuffer{}}
	g.node = open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs = false, g.certs
		cfg.Gateway = "127.0.0.1:0"
		cfg.Logger = slog.New(slog.NewTextHandler(g.log, nil))
		cfg.Observers = func(r *percolator.Registry) { // which makes the table
			r.Strong("watches", percolator.Column{Table: "t", Name: "seen"},
				func(context.Context, *percolator.Tx, percolator.Notification) error { return nil })
		}
	})
	return g
}

// apart is a client of the gateway.
type apart struct {
	gw.GatewayClient
	gw.ControlClient
	gw.WorkClient
	source certs.Source
}

// client returns a client with a certificate of the name and the role.
func (g *gated) client(name string, role certs.Role) apart {
	g.Helper()
	own := g.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: own, CA: g.certs, Name: name, Role: role}); err != nil {
		g.Fatal(err)
	}
	files, err := certs.Open(certs.ClientSource(own), nil)
	if err != nil {
		g.Fatal(err)
	}
	return g.apart(files.Client(), certs.ClientSource(own))
}

func (g *gated) apart(cfg *tls.Config, source certs.Source) apart {
	return g.calling(&http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}, source)
}

func (g *gated) calling(transport http.RoundTripper, source certs.Source) apart {
	c := &http.Client{Transport: transport}
	g.Cleanup(c.CloseIdleConnections)
	url := "https://" + g.node.GatewayAddr()
	return apart{gw.NewGatewayClient(c, url, connect.WithGRPC()), gw.NewControlClient(c, url),
		gw.NewWorkClient(c, url), source}
}

func cellKey(table, row string) *gw.Key {
	return &gw.Key{Table: table, RowAs: &gw.Key_Row{Row: row}, ColumnAs: &gw.Key_Column{Column: "c"}}
}

func (a apart) read(ctx context.Context, table string) error {
	_, err := a.Read(ctx, connect.NewRequest(&gw.ReadRequest{Keys: []*gw.Key{cellKey(table, "r")}}))
	return err
}

func (a apart) write(ctx context.Context, table string) error {
	_, err := a.Transact(ctx, connect.NewRequest(&gw.TransactRequest{Deletes: []*gw.Key{cellKey(table, "r")}}))
	return err
}

// work opens a worker's stream for an observer of the name, and returns the worker and what ends it.
func (a apart) work(ctx context.Context, observer string) (worker string, end func(), err error) {
	ctx, end = context.WithCancel(ctx)
	stream, err := a.Observe(ctx, connect.NewRequest(&gw.ObserveRequest{Observers: []*gw.ObserverRegistration{{
		Name: observer, Table: "t", ColumnAs: &gw.ObserverRegistration_Column{Column: "c"},
	}}}))
	if err == nil && !stream.Receive() {
		err = stream.Err()
	}
	if err != nil {
		end()
		return "", nil, err
	}
	return stream.Msg().GetStarted().GetWorker(), end, nil
}

// TestGatewayRoles: each call needs the role that the client port needs, and is audited as there.
func TestGatewayRoles(t *testing.T) {
	g := newGated(t)
	ctx := t.Context()
	pause := &gw.ControlObserverRequest{Name: "watches", Action: &gw.ControlObserverRequest_Paused{Paused: true}}
	roles := []certs.Role{certs.Reader, certs.Writer, certs.Observer, certs.Operator}
	for at, role := range roles {
		c := g.client("of-"+string(role), role)
		for _, call := range []struct {
			what  string
			least certs.Role
			do    func() error
		}{
			{"Read", certs.Reader, func() error { return c.read(ctx, "t") }},
			{"Transact", certs.Writer, func() error { return c.write(ctx, "t") }},
			{"ListTables", certs.Reader, func() error {
				_, err := c.ListTables(ctx, connect.NewRequest(&gw.ListTablesRequest{}))
				return err
			}},
			{"CreateTable", certs.Writer, func() error {
				_, err := c.CreateTable(ctx, connect.NewRequest(&gw.CreateTableRequest{Table: &gw.TableSpec{Name: "of " + string(role)}}))
				return err
			}},
			{"ListObservers", certs.Reader, func() error {
				_, err := c.ListObservers(ctx, connect.NewRequest(&gw.ListObserversRequest{}))
				return err
			}},
			{"Observe", certs.Observer, func() error {
				_, end, err := c.work(ctx, "of "+string(role))
				if err == nil {
					end()
				}
				return err
			}},
			{"ReplayObserver", certs.Observer, func() error {
				_, err := c.ReplayObserver(ctx, connect.NewRequest(&gw.ReplayObserverRequest{
					Name: "watches", Action: gw.ReplayObserverRequest_ACTION_START,
				}))
				return err
			}},
			{"ControlObserver", certs.Operator, func() error {
				_, err := c.ControlObserver(ctx, connect.NewRequest(pause))
				return err
			}},
			{"SplitTablet", certs.Operator, func() error {
				_, err := c.SplitTablet(ctx, connect.NewRequest(&gw.SplitTabletRequest{Table: "t", RowAs: &gw.SplitTabletRequest_Row{Row: "m"}}))
				return err
			}},
			{"DropTable", certs.Operator, func() error {
				_, err := c.DropTable(ctx, connect.NewRequest(&gw.DropTableRequest{Name: "of writer"}))
				return err
			}},
		} {
			err := call.do()
			may := at >= slices.Index(roles, call.least)
			if may != (err == nil) || !may && connect.CodeOf(err) != connect.CodePermissionDenied {
				t.Errorf("ANY-ROLE: %s by a client of the role %s: %v", call.what, role, err)
			}
		}
	}
	for _, line := range []string{
		"msg=audit method=ControlObserver outcome=done role=operator name=of-operator by=certificate",
		"msg=audit method=ControlObserver outcome=refused role=observer name=of-observer by=certificate",
		"msg=audit method=CreateTable outcome=done role=writer name=of-writer",
	} {
		if !strings.Contains(g.log.String(), line) {
			t.Errorf("the audit log lacks %q", line)
		}
	}
}

// noCertificate returns the configuration of a browser that trusts the cluster.
func (g *gated) noCertificate() *tls.Config {
	g.Helper()
	files, err := certs.Open(certs.ClientSource(g.certs), nil)
	if err != nil {
		g.Fatal(err)
	}
	cfg := files.Client()
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	return cfg
}

// bearer adds a token to requests.
type bearer struct {
	*http.Transport
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(req)
}

// events requests the events of the table t with a token, as a page does by fetch, and returns the status of the answer.
func (g *gated) events(ctx context.Context, token string) int {
	g.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+g.node.GatewayAddr()+"/events?table=t&initial=true", nil)
	if err != nil {
		g.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{TLSClientConfig: g.noCertificate(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		g.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestGatewayTokens: a token has its role and the grants to its name, and ends, with its streams, once it is revoked or has
// expired.
func TestGatewayTokens(t *testing.T) {
	g := newGated(t)
	ctx := t.Context()
	admin := handle.Client(g.node.DB()).Admin()
	secrets := map[string]string{}
	by := func(name, role string, ttl time.Duration) apart {
		secret, hash := certs.NewToken()
		secrets[name] = secret
		if _, err := admin.CreateToken(ctx, &pb.CreateTokenRequest{
			Name: name, Role: role, TtlMs: ttl.Milliseconds(), Hash: hash,
		}); err != nil {
			t.Fatal(err)
		}
		return g.calling(bearer{&http.Transport{TLSClientConfig: g.noCertificate(), ForceAttemptHTTP2: true}, secret}, certs.Source{})
	}
	reader, writer := by("rita", "reader", time.Hour), by("willy", "writer", time.Hour)
	observer, brief := by("otto", "observer", time.Hour), by("brief", "reader", time.Second)
	forged := g.calling(bearer{&http.Transport{TLSClientConfig: g.noCertificate(), ForceAttemptHTTP2: true},
		"percolator_" + strings.Repeat("A", 43)}, certs.Source{})
	for what, c := range map[string]struct {
		err  error
		want connect.Code
	}{
		"a reader reads": {reader.read(ctx, "t"), 0}, "a reader writes": {reader.write(ctx, "t"), connect.CodePermissionDenied},
		"a writer writes": {writer.write(ctx, "t"), 0}, "a forged one reads": {forged.read(ctx, "t"), connect.CodeUnauthenticated},
	} {
		if c.err == nil && c.want != 0 || c.err != nil && connect.CodeOf(c.err) != c.want {
			t.Errorf("ANY-TOKEN: %s: %v", what, c.err)
		}
	}
	for secret, want := range map[string]int{secrets["rita"]: http.StatusOK, "percolator_" + strings.Repeat("A", 43): http.StatusUnauthorized} {
		if got := g.events(ctx, secret); got != want {
			t.Errorf("ANY-TOKEN: events for the token %s: %d, want %d", secret, got, want)
		}
	}
	if _, err := admin.SetGrant(ctx, &pb.SetGrantRequest{Table: "t", Name: "otto", Role: "writer"}); err != nil {
		t.Fatal(err)
	}
	if err := writer.write(ctx, "t"); connect.CodeOf(err) != connect.CodeNotFound && connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("ANY-TOKEN: a token without a grant writes: %v", err)
	}
	stream, err := observer.Observe(ctx, connect.NewRequest(&gw.ObserveRequest{LeaseMs: 60_000, Observers: []*gw.ObserverRegistration{{
		Name: "by token", Table: "t", ColumnAs: &gw.ObserverRegistration_Column{Column: "c"},
	}}}))
	if err != nil || !stream.Receive() {
		t.Fatal(err, stream.Err())
	}
	if _, err := admin.RevokeToken(ctx, &pb.RevokeTokenRequest{Name: "otto"}); err != nil {
		t.Fatal(err)
	}
	for revoked := time.Now(); stream.Receive(); {
		if time.Since(revoked) > 20*time.Second {
			t.Fatal("ANY-TOKEN: the stream of a revoked token goes on")
		}
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("ANY-TOKEN: the stream of a revoked token ends with %v", stream.Err())
	}
	for began := time.Now(); connect.CodeOf(brief.read(ctx, "t")) != connect.CodeUnauthenticated; <-time.After(50 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("ANY-TOKEN: an expired token reads")
		}
	}
	if _, err := writer.CreateTable(ctx, connect.NewRequest(&gw.CreateTableRequest{Table: &gw.TableSpec{Name: "w"}})); err != nil {
		t.Error(err)
	}
	if line := "msg=audit method=CreateTable outcome=done role=writer name=willy by=token"; !strings.Contains(g.log.String(), line) {
		t.Errorf("the audit log lacks %q", line)
	}
}

// TestGatewayWithoutCertificate: a client without a certificate, which a browser's preflight request may
// be, calls nothing.
func TestGatewayWithoutCertificate(t *testing.T) {
	g := newGated(t)
	if err := g.apart(g.noCertificate(), certs.Source{}).read(t.Context(), "t"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("ANY-ROLE: a client without a certificate: %v", err)
	}
}

// TestGatewayGrants: a table with grants is refused to the gateway's callers without one, and only
// the client that began a session or a worker uses it.
func TestGatewayGrants(t *testing.T) {
	g := newGated(t)
	ctx := t.Context()
	ann, bob := g.client("ann", certs.Writer), g.client("bob", certs.Writer)
	if err := ann.write(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	operator := g.client("op", certs.Operator)
	control, err := rpc.Dial(ctx, []string{g.node.Addr()}, rpc.ClientConfig{
		CertFile: operator.source.Cert, KeyFile: operator.source.Key, CAFile: operator.source.CA,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	if _, err := pb.NewAdminClient(control.AdminConn()).SetGrant(ctx,
		&pb.SetGrantRequest{Table: "t", Name: "ann", Role: "writer"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ann.read(ctx, "t"), ann.write(ctx, "t"), operator.write(ctx, "t")); err != nil {
		t.Errorf("those who may: %v", err)
	}
	// bob's client does not know the table, or is refused.
	for what, err := range map[string]error{"read": bob.read(ctx, "t"), "write": bob.write(ctx, "t")} {
		if code := connect.CodeOf(err); code != connect.CodeNotFound && code != connect.CodePermissionDenied {
			t.Errorf("GRANT-IGNORED: %s of bob: %v", what, err)
		}
	}
	// A worker needs a grant too: its runs write acknowledgments.
	if _, _, err := g.client("worker", certs.Observer).work(ctx, "refused"); connect.CodeOf(err) != connect.CodePermissionDenied &&
		connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("GRANT-IGNORED: a worker without a grant: %v", err)
	}
	worker, end, err := operator.work(ctx, "granted")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if _, err := ann.Renew(ctx, connect.NewRequest(&gw.RenewRequest{Worker: worker})); connect.CodeOf(err) !=
		connect.CodeFailedPrecondition {
		t.Errorf("FOREIGN-SESSION: another client renews the worker: %v", err)
	}
	begun, err := ann.Begin(ctx, connect.NewRequest(&gw.BeginRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []apart{bob, operator} {
		_, err := c.Commit(ctx, connect.NewRequest(&gw.CommitRequest{Session: begun.Msg.Session}))
		if connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("FOREIGN-SESSION: another client commits the session: %v", err)
		}
	}
	if _, err := ann.Commit(ctx, connect.NewRequest(&gw.CommitRequest{Session: begun.Msg.Session})); err != nil {
		t.Error(err)
	}
}

// TestOutcomesAreHidden: clients below operators neither see nor use the table of outcomes, and its id is
// known to a node before the first operation on it.
func TestOutcomesAreHidden(t *testing.T) {
	g := newGated(t)
	ctx := t.Context()
	writer := g.client("ann", certs.Writer)
	if _, err := writer.CreateTable(ctx, connect.NewRequest(&gw.CreateTableRequest{
		Table: &gw.TableSpec{Name: rpc.OutcomesTable},
	})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("OUTCOMES-OPEN: created by a client: %v", err)
	}
	dial := func(s certs.Source) *percolator.DB {
		db, err := percolator.Dial(ctx, []string{g.node.Addr()}, percolator.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	db := dial(writer.source)
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: rpc.OutcomesTable}); !errors.Is(err, percolator.ErrPermission) {
		t.Errorf("OUTCOMES-OPEN: created by a client: %v", err)
	}
	for range 2 {
		if _, err := writer.Transact(ctx, connect.NewRequest(&gw.TransactRequest{
			Deletes: []*gw.Key{cellKey("t", "r")}, IdempotencyKey: "k",
		})); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := db.Tables(ctx)
	if err != nil || slices.ContainsFunc(tables, func(s percolator.TableSpec) bool { return s.Name == rpc.OutcomesTable }) {
		t.Errorf("OUTCOMES-OPEN: %v, %v", tables, err)
	}
	// A client that knows the id, such as from an operator.
	raw, err := rpc.Dial(ctx, []string{g.node.Addr()}, rpc.ClientConfig{
		CertFile: writer.source.Cert, KeyFile: writer.source.Key, CAFile: writer.source.CA,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	all, err := handle.Client(dial(g.client("op", certs.Operator).source)).TableID(ctx, rpc.OutcomesTable)
	if err != nil {
		t.Fatal(err)
	}
	found, err := raw.Locate(ctx, all, "", 1)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	for what, op := range map[string]*pb.TabletRequest{
		"read": {Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{At: 1, Span: &pb.Span{Table: uint32(all)}}}},
		"write": {Op: &pb.TabletRequest_Prewrite{Prewrite: &pb.PrewriteRequest{
			Primary: &pb.Cell{Table: uint32(all), Row: []byte("r")}, StartTs: 1,
			Writes: []*pb.CellWrite{{Cell: &pb.Cell{Table: uint32(all), Row: []byte("r")}}},
		}}},
	} {
		op.TabletId, op.Epoch = found[0].TabletId, found[0].Epoch
		resp, err := raw.Send(ctx, nil, op)
		if err != nil || resp.GetError().GetCode() != pb.Error_CODE_PERMISSION {
			t.Errorf("OUTCOMES-OPEN: %s: %v, %v", what, resp, err)
		}
	}
}
