package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/txn"
	"github.com/percolator-go/percolator/internal/txn/txntest"
)

// in returns a client's configuration with the files of a folder.
func in(dir string) ClientConfig {
	s := certs.ClientSource(dir)
	return ClientConfig{
		CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA, DialTimeout: 10 * time.Second,
	}
}

// secured serves with a folder's node certificate until the test ends; more services are optional.
func secured(t *testing.T, dir string, logger *slog.Logger,
	register func(grpc.ServiceRegistrar)) (addr string) {
	t.Helper()
	return securedWith(t, dir, ServerConfig{Logger: logger, Register: register})
}

// securedWith is like secured, with a configuration.
func securedWith(t *testing.T, dir string, cfg ServerConfig) (addr string) {
	t.Helper()
	cluster := txntest.New()
	cluster.AddTable("t")
	return securedOver(t, dir, cluster, cfg)
}

// securedOver is like securedWith, over a cluster.
func securedOver(t *testing.T, dir string, cluster *txntest.Cluster, cfg ServerConfig) (addr string) {
	t.Helper()
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLS = files.Clients(certs.AllRoles()...)
	if cfg.Revoked == nil {
		cfg.Revoked = files.Revoked
	}
	server := NewServer(cluster.Process(1, 1), cfg)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(wg.Wait)
	t.Cleanup(server.Stop)
	return lis.Addr().String()
}

// A server that requires certificates serves only clients with one from its authority.
func TestMutualTLS(t *testing.T) {
	ours, theirs := certstest.Folder(t, "127.0.0.1"), certstest.Folder(t, "127.0.0.1")
	addr := secured(t, ours, nil, nil)
	node := in(ours)
	node.CertFile, node.KeyFile = certs.NodeSource(ours).Cert, certs.NodeSource(ours).Key
	pair, err := tls.LoadX509KeyPair(in(ours).CertFile, in(ours).KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(concat(t, in(ours).CAFile))
	memory := ClientConfig{TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair},
	}}
	for name, cfg := range map[string]ClientConfig{
		"client": in(ours), "node": node, "from memory": memory,
	} {
		c, err := Dial(context.Background(), []string{addr}, cfg)
		if err != nil {
			t.Fatal(name, err)
		}
		if st, err := c.NodeStatus(context.Background()); err != nil || st.ClusterId != "txntest" {
			t.Errorf("%s: %v, %v", name, st, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	foreign, distrusting := in(theirs), in(theirs)
	foreign.CAFile = in(ours).CAFile + "+"
	both := concat(t, in(ours).CAFile, in(theirs).CAFile)
	if err := os.WriteFile(foreign.CAFile, both, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg  ClientConfig
		says string
	}{
		"no certificate":      {ClientConfig{CAFile: in(ours).CAFile}, "certificate required"},
		"foreign certificate": {foreign, "tls"},
		"foreign authority":   {distrusting, "unknown authority"},
		"clear text":          {ClientConfig{Insecure: true}, ""},
		"TLS without a certificate": {ClientConfig{TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: roots}}, "certificate required"},
		"TLS that trusts others": {ClientConfig{TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}}, "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Dial tries for as long as it may
			tc.cfg.DialTimeout = 2 * time.Second
			_, err := Dial(context.Background(), []string{addr}, tc.cfg)
			if !errors.Is(err, txn.ErrUnavailable) || !strings.Contains(err.Error(), tc.says) {
				t.Error(err)
			}
		})
	}
}

// TestWhyRefused: a client refused after the handshake, as in TLS 1.3, gets the reason, even if the
// server has closed the connection before the client writes.
func TestWhyRefused(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	files, err := certs.Open(certs.NodeSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := certs.Open(certs.Source{CA: in(dir).CAFile}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	refused := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			_, _, err = credentials.NewTLS(files.Server(certs.Operator)).ServerHandshake(conn)
			_ = conn.Close()
		}
		refused <- err
	}()
	raw, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	conn, _, err := newFileCredentials(nobody).ClientHandshake(context.Background(),
		lis.Addr().String(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err == nil {
		t.Fatal("a client without a certificate is served")
	}
	// the first may use a connection whose end the client has not noticed yet
	for err == nil {
		_, err = conn.Write([]byte("preface"))
	}
	if !strings.Contains(err.Error(), "certificate required") {
		t.Error(err)
	}
}

func concat(t *testing.T, names ...string) (all []byte) {
	t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}

// The files of a configuration must exist and be valid, and the error names the file.
func TestUnusableFiles(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	missing, expired := in(dir), in(t.TempDir())
	missing.KeyFile += "?"
	past := time.Now().Add(-48 * time.Hour)
	for _, create := range []func(certs.Request) (certs.Created, error){certs.CreateCA,
		certs.CreateClient} {
		r := certs.Request{
			Dir: filepath.Dir(expired.CAFile), Name: "x", Now: past, Lifetime: 24 * time.Hour,
		}
		if _, err := create(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		cfg  ClientConfig
		says string
	}{"missing": {missing, "client.key?"}, "expired": {expired, "client.crt expired on"}} {
		_, err := Dial(context.Background(), []string{"127.0.0.1:1"}, tc.cfg)
		if !errors.Is(err, txn.ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hello is a service for nodes.
type hello struct {
	pb.UnimplementedMembershipServer
}

func (hello) Hello(context.Context, *pb.HelloRequest) (*pb.HelloResponse, error) {
	return &pb.HelloResponse{}, nil
}

// Services registered in addition to the public interface are for nodes only.
func TestServicesForNodes(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	addr := secured(t, dir, nil, func(r grpc.ServiceRegistrar) {
		pb.RegisterMembershipServer(r, hello{})
	})
	for _, tc := range []struct {
		source certs.Source
		want   codes.Code
	}{{certs.NodeSource(dir), codes.OK}, {certs.ClientSource(dir), codes.PermissionDenied}} {
		files, err := certs.Open(tc.source, nil)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(newFileCredentials(files)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = pb.NewMembershipClient(conn).Hello(context.Background(), &pb.HelloRequest{})
		if status.Code(err) != tc.want {
			t.Errorf("%s: %v", tc.source.Cert, err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A long-running client connects with the certificate present at that moment.
func TestClientReloads(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	files, err := certs.Open(certs.ClientSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(t.TempDir(), "server") // unaffected by later changes
	if _, err := certs.CreateNode(certs.Request{Dir: server, CA: dir, Name: "x",
		Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	addr := secured(t, server, nil, nil)
	creds := newFileCredentials(files)
	// The authority is replaced: the files hold the new one, and the server still uses the old one.
	next := certstest.Folder(t, "127.0.0.1")
	if err := os.WriteFile(in(dir).CAFile, concat(t, in(next).CAFile, in(dir).CAFile),
		0o600); err != nil {
		t.Fatal(err)
	}
	for name := range map[string]string{in(dir).CertFile: "", in(dir).KeyFile: ""} {
		if err := os.WriteFile(name, concat(t, filepath.Join(next, filepath.Base(name))),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() bool {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		conn, _, err := creds.Clone().ClientHandshake(context.Background(), addr, raw)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // the server's first frame, or its refusal
		}
		return err != nil
	}
	deadline := time.After(30 * time.Second)
	// the files are checked once a second
	for tick := time.NewTicker(50 * time.Millisecond); !refused(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the old certificate is still shown")
		}
	}
}

// TestRevokedConnectionsEnd: after its certificate is revoked, an existing connection gets no
// answer to a call, nor to an operation of an open stream.
func TestRevokedConnectionsEnd(t *testing.T) {
	dir := certstest.Folder(t, "127.0.0.1")
	var revoked atomic.Bool
	addr := securedWith(t, dir, ServerConfig{Revoked: func(cert *x509.Certificate) bool {
		role, name := certs.Identity(cert)
		return revoked.Load() && role == certs.Writer && name == "ann"
	}})
	clients := roleClients(t, dir, addr)
	scan := func(role certs.Role) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := clients[role].Send(ctx, nil, &pb.TabletRequest{TabletId: 2,
			Op: &pb.TabletRequest_Scan{Scan: &pb.ScanRequest{Span: &pb.Span{Table: 16}}}})
		return err
	}
	call := func(role certs.Role) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := clients[role].Tables(ctx)
		return err
	}
	for _, gone := range []bool{false, true} {
		revoked.Store(gone)
		for _, role := range []certs.Role{certs.Writer, certs.Reader} {
			for what, err := range map[string]error{"an operation": scan(role), "a call": call(role)} {
				if (err != nil) != (gone && role == certs.Writer) {
					t.Errorf("REVOKED-GOES-ON: %s of a %s, revoked %v: %v", what, role, gone, err)
				}
			}
		}
	}
}

// TestRevokedIsTold: a client whose certificate was revoked before it connects gets an error that
// says so.
func TestRevokedIsTold(t *testing.T) {
	dir, ann := certstest.Folder(t, "127.0.0.1"), t.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: ann, CA: dir, Name: "ann", Role: certs.Operator}); err != nil {
		t.Fatal(err)
	}
	if _, err := certs.Revoke(dir, []string{in(ann).CertFile}, time.Now()); err != nil {
		t.Fatal(err)
	}
	addr := secured(t, dir, nil, nil)
	_, err := Dial(t.Context(), []string{addr}, in(ann))
	var refusal *txn.ServerError
	if !errors.As(err, &refusal) || refusal.Code != pb.Error_CODE_PERMISSION || !strings.Contains(refusal.Message, "revoked") {
		t.Errorf("REVOKED-GOES-ON: %v", err)
	}
	// Every call requires a certificate that is not revoked.
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(newFileCredentials(openFiles(t, ann))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, method := range []string{pb.Percolator_Tables_FullMethodName, "/no.Such/Method", pb.Membership_Hello_FullMethodName} {
		if err := conn.Invoke(t.Context(), method, &pb.TablesRequest{}, &pb.TablesResponse{}); status.Code(err) !=
			codes.Unauthenticated {
			t.Errorf("REVOKED-GOES-ON: %s: %v", method, err)
		}
	}
}

// openFiles opens a client's files.
func openFiles(t *testing.T, dir string) *certs.Files {
	t.Helper()
	files, err := certs.Open(certs.ClientSource(dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A server that returns at its address is found again, and work continues.
func TestReconnect(t *testing.T) {
	cluster := txntest.New()
	cluster.AddTable("t", "g")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	var wg sync.WaitGroup
	start := func(lis net.Listener) *Server {
		s := NewServer(cluster.Process(1, 1), ServerConfig{})
		wg.Go(func() { _ = s.Serve(lis) })
		return s
	}
	server := start(lis)
	tr, err := Dial(ctx, []string{addr}, ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	c := txn.NewClient(tr, txn.Config{})
	committed := make(chan int, 100)
	working, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; working.Err() == nil; i++ {
			_, err := c.Run(ctx, txn.Options{}, func(_ context.Context, t *txn.Txn) error {
				t.Set(key("a"), []byte{byte(i)})
				t.Set(key("z"), []byte{byte(i)})
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			select {
			case committed <- i:
			case <-working.Done():
			}
		}
	})
	for range 3 {
		<-committed
		server.Stop()
		if lis, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		server = start(lis)
		for range 100 {
			<-committed
		}
	}
	stop()
	work.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	server.Stop()
	wg.Wait()
}
