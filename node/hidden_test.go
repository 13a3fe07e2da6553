package node_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node"
)

// secret is part of the name of a table with grants, of its rows, values and columns, and of its
// observer's name.
const secret = "SECRET"

// openKey is a key at which a tablet of a table without grants begins.
const openKey = "ann@example.com"

// vault is a node with certificates, also over HTTP, that has a table with grants.
type vault struct {
	*testing.T
	node  *node.Node
	certs string
	admin pb.AdminClient
	table uint32
}

func newVault(t *testing.T) *vault {
	v := &vault{T: t, certs: certstest.Folder(t, "127.0.0.1")}
	cell := percolator.Column{Table: secret + "table", Name: secret + "column"}
	v.node = open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs, cfg.HTTPTLS, cfg.Pprof = false, v.certs, true, true
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		cfg.Observers = func(r *percolator.Registry) {
			r.Strong(secret+"observer", cell,
				func(context.Context, *percolator.Tx, percolator.Notification) error {
					return context.DeadlineExceeded
				})
		}
	})
	s := certs.ClientSource(v.certs)
	db, err := percolator.Dial(t.Context(), []string{v.node.Addr()},
		percolator.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateTable(t.Context(), percolator.TableSpec{
		Name: cell.Table, SplitKeys: []string{secret + "h", secret + "p"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"a", "k", "z"} {
		if err := db.Transact(t.Context(), func(_ context.Context, tx *percolator.Tx) error {
			tx.Set(secret+row, cell, []byte(secret))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.CreateTable(t.Context(), percolator.TableSpec{Name: "open", SplitKeys: []string{openKey}}); err != nil {
		t.Fatal(err)
	}
	conflict(t, db, secret+"hot", cell)
	c, err := rpc.Dial(t.Context(), []string{v.node.Addr()},
		rpc.ClientConfig{CertFile: s.Cert, KeyFile: s.Key, CAFile: s.CA})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	v.admin = pb.NewAdminClient(c.AdminConn())
	tables, err := c.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range tables {
		if one.Name == cell.Table {
			v.table = one.Id
		}
	}
	if _, err := v.admin.SetGrant(t.Context(), &pb.SetGrantRequest{
		Table: cell.Table, Name: "granted", Role: "reader",
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// as returns the TLS configuration of a client with the name and a role; without a role if that is
// empty.
func (v *vault) as(name string, role certs.Role) *tls.Config {
	v.Helper()
	source := certs.Source{CA: certs.ClientSource(v.certs).CA}
	if role != "" {
		dir := v.TempDir()
		if _, err := certs.CreateClient(certs.Request{Dir: dir, CA: v.certs, Name: name, Role: role}); err != nil {
			v.Fatal(err)
		}
		source = certs.ClientSource(dir)
	}
	files, err := certs.Open(source, nil)
	if err != nil {
		v.Fatal(err)
	}
	return files.Client()
}

// token creates a token and returns it.
func (v *vault) token(name string, role certs.Role) string {
	v.Helper()
	text, hash := certs.NewToken()
	if _, err := v.admin.CreateToken(v.Context(), &pb.CreateTokenRequest{
		Name: name, Role: string(role), TtlMs: time.Hour.Milliseconds(), Hash: hash,
	}); err != nil {
		v.Fatal(err)
	}
	return text
}

// asks maps each path over HTTP to the test's query; empty: none is sent.
var asks = map[string]string{
	"/": "/", "/console/": "/console/console.js", "/livez": "/livez", "/readyz": "/readyz", "/metrics": "/metrics",
	"/api/v1/status": "/api/v1/status", "/api/v1/cluster": "/api/v1/cluster",
	"/api/v1/cluster/stream": "/api/v1/cluster/stream", "/api/v1/session": "/api/v1/session",
	"/api/v1/tablets": "/api/v1/tablets", "/debug/pprof/": "/debug/pprof/",
	"/debug/pprof/profile": "", "/debug/pprof/trace": "", // of this process, which has secret in its memory
	"/api/v1/rows":      "/api/v1/rows?table=u",
	"/api/v1/row":       "/api/v1/row?table=u&row=a",
	"/api/v1/trace":     "/api/v1/trace?table=u&row=a",
	"/api/v1/parked":    "/api/v1/parked?observer=o",
	"/api/v1/history":   "/api/v1/history?scope=cluster",
	"/api/v1/heat":      "/api/v1/heat",
	"/api/v1/mailboxes": "/api/v1/mailboxes",
	"/api/v1/contended": "/api/v1/contended",
}

// paths returns the paths in the sources of the HTTP listener and of its queries.
func paths(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob("../internal/httpd/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fixed := regexp.MustCompile(`"GET (/[^"{]*)(?:\{[^}]*\})?"`)
	question := regexp.MustCompile(`(?m)"([a-z]+)":\s+\{(?:Data|Answer|Seen): `)
	for _, name := range append(files, "console/questions.go") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range fixed.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "/api/v1/" {
				found = append(found, m[1])
			}
		}
		for _, m := range question.FindAllStringSubmatch(string(text), -1) {
			found = append(found, "/api/v1/"+m[1])
		}
	}
	return found
}

// get returns the path's answer; of a stream, its first event.
func (v *vault) get(client *http.Client, path, token string) string {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.node.HTTPAddr()+path, nil)
	if err != nil {
		v.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		v.Fatal(path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if strings.HasSuffix(path, "/stream") {
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for {
			if !lines.Scan() {
				v.Fatal(path, lines.Err())
			}
			if strings.HasPrefix(lines.Text(), "data: ") {
				return lines.Text()
			}
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.Fatal(path, err)
	}
	return string(body)
}

// TestHiddenEverywhere checks all answers of a node, over HTTP and gRPC, with every role: a client
// other than an operator, without a grant for a table that has grants, sees neither the table's
// name nor its rows, columns, values and observers. Metrics name observers to all
// (docs/limitations.md).
func TestHiddenEverywhere(t *testing.T) {
	v := newVault(t)
	all := paths(t)
	if len(all) < len(asks) {
		t.Errorf("the sources serve %d paths, and the test knows %d", len(all), len(asks))
	}
	for _, who := range []struct {
		name, token, cert string
		role              certs.Role
		sees              bool
	}{
		{name: "nobody"},
		{name: "a wrong token", token: "percolator_wrong"},
		{name: "a reader's token", token: v.token("r", certs.Reader)},
		{name: "an operator's token", token: v.token("p", certs.Operator), sees: true},
		{name: "a token with a grant", token: v.token("granted", certs.Reader), sees: true},
		{name: "a reader's certificate", role: certs.Reader},
		{name: "a writer's certificate", role: certs.Writer},
		{name: "an observer's certificate", role: certs.Observer},
		{name: "an operator's certificate", role: certs.Operator, sees: true},
		{name: "a certificate with a grant", cert: "granted", role: certs.Reader, sees: true},
	} {
		cfg := v.as(who.cert+"x", who.role)
		if who.cert != "" {
			cfg = v.as(who.cert, who.role)
		}
		transport := &http.Transport{TLSClientConfig: cfg}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for _, path := range all {
			ask, known := asks[path]
			if !known {
				t.Errorf("the test asks nothing of %s", path)
			}
			if ask == "" {
				continue
			}
			body := v.get(client, ask, who.token)
			if path == "/metrics" {
				body = strings.ReplaceAll(body, secret+"observer", "")
			}
			if strings.Contains(body, secret) && !who.sees {
				at := strings.Index(body, secret)
				t.Errorf("HIDDEN-SHOWN: %s sees at %s: …%s…", who.name, ask, body[max(0, at-200):min(len(body), at+50)])
			}
			loggedIn := who.role != "" || who.token != "" && who.name != "a wrong token"
			shown := strings.Contains(body, openKey) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(openKey)))
			if shown && !loggedIn {
				t.Errorf("KEYS-SHOWN: %s sees a key at %s", who.name, ask)
			}
			// Otherwise the test would prove nothing.
			switch path {
			case "/api/v1/status", "/api/v1/cluster", "/api/v1/cluster/stream", "/api/v1/tablets":
				if who.sees && !strings.Contains(body, secret) {
					t.Errorf("%s does not see at %s what it may", who.name, ask)
				}
				if !shown && loggedIn && path != "/api/v1/cluster/stream" {
					t.Errorf("%s does not see the keys at %s", who.name, ask)
				}
			}
		}
		if who.role != "" && !who.role.Includes(certs.Operator) {
			v.calls(who.name, cfg, who.sees)
		}
	}
}

// calls makes all calls of the services for clients, with requests on the table and its tablets.
func (v *vault) calls(who string, cfg *tls.Config, sees bool) {
	v.Helper()
	conn, err := grpc.NewClient(v.node.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		v.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answered := 0
	for _, name := range []protoreflect.Name{"Percolator", "Admin"} {
		file := pb.File_percolator_v1_service_proto
		if name == "Admin" {
			file = pb.File_percolator_v1_admin_proto
		}
		methods := file.Services().ByName(name).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if m.IsStreamingClient() || m.IsStreamingServer() {
				continue // operations, which internal/rpc tests
			}
			for tablet := range uint64(8) {
				req, resp := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
				if f := m.Input().Fields().ByName("table"); f != nil && f.Kind() == protoreflect.Uint32Kind {
					req.Set(f, protoreflect.ValueOfUint32(v.table))
				}
				f := m.Input().Fields().ByName("tablet_id")
				if f != nil {
					req.Set(f, protoreflect.ValueOfUint64(tablet))
				}
				err := conn.Invoke(v.Context(), "/"+string(m.Parent().FullName())+"/"+string(m.Name()), req, resp)
				text := prototext.Format(resp)
				if err != nil {
					text = err.Error()
				} else {
					answered++
				}
				if strings.Contains(text, secret) && !sees {
					v.Errorf("HIDDEN-SHOWN: %s sees in %s: %s", who, m.FullName(), text)
				}
				if f == nil {
					break // all requests are the same
				}
			}
		}
	}
	if answered < 5 {
		v.Errorf("only %d calls of %s were answered", answered, who)
	}
}
