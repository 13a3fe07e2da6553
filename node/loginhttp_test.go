package node_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/node"
)

// sharedLog is a log that a test reads while a node writes it.
type sharedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// secureConsole is a node with a console over TLS and a log that includes the audit lines.
type secureConsole struct {
	*testing.T
	node   *node.Node
	certs  string // the folder of the authority and of an operator
	log    sharedLog
	admins pb.AdminClient // with the operator's certificate
}

func newSecureConsole(t *testing.T) *secureConsole {
	s := &secureConsole{T: t, certs: certstest.Folder(t, "127.0.0.1")}
	s.node = open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs, cfg.HTTPTLS = false, s.certs, true
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		cfg.LogLevel = &slog.LevelVar{}
		cfg.LogLevel.Set(slog.LevelError)
		cfg.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: cfg.LogLevel}))
	})
	source := certs.ClientSource(s.certs)
	c, err := rpc.Dial(t.Context(), []string{s.node.Addr()},
		rpc.ClientConfig{CertFile: source.Cert, KeyFile: source.Key, CAFile: source.CA})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s.admins = pb.NewAdminClient(c.AdminConn())
	return s
}

// token creates a token and returns its secret.
func (s *secureConsole) token(name, role string) string {
	s.Helper()
	secret, hash := certs.NewToken()
	_, err := s.admins.CreateToken(s.Context(), &pb.CreateTokenRequest{
		Name: name, Role: role, TtlMs: time.Hour.Milliseconds(), Hash: hash,
	})
	if err != nil {
		s.Fatal(err)
	}
	return secret
}

// browser returns a browser with the client's certificate in a folder; without one if that is
// empty.
func (s *secureConsole) browser(folder string) *http.Client {
	s.Helper()
	source := certs.Source{CA: certs.ClientSource(s.certs).CA}
	if folder != "" {
		source = certs.ClientSource(folder)
	}
	files, err := certs.Open(source, nil)
	if err != nil {
		s.Fatal(err)
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: files.Client(), DisableKeepAlives: true},
		Timeout:   30 * time.Second,
	}
}

// post sends a page's request and returns the status, a newly set cookie and the answer.
func (s *secureConsole) post(client *http.Client, path, cookie, body string) (int, string,
	map[string]any) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost,
		"https://"+s.node.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Percolator-Console", "1")
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	var answer map[string]any
	_ = json.Unmarshal(text, &answer)
	set, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	return resp.StatusCode, set, answer
}

// undo requests, through a browser, the end of the node's drain, which operators may, also when
// there is none. It checks the status and returns the answer.
func (s *secureConsole) undo(who string, client *http.Client, cookie string,
	want int) map[string]any {
	s.Helper()
	code, _, answer := s.post(client, "/api/v1/actions/node-drain", cookie,
		fmt.Sprintf(`{"node_id":%d,"undo":true}`, s.node.Status().NodeId))
	if code != want {
		s.Errorf("%s: %d %v", who, code, answer)
	}
	return answer
}

// audited requires the lines in the log.
func (s *secureConsole) audited(lines ...string) {
	s.Helper()
	for _, line := range lines {
		if !strings.Contains(s.log.String(), "msg=audit "+line) {
			s.Errorf("UNAUDITED: %s", line)
		}
	}
}

// TestConsoleLogsIn: over TLS an operator acts by token or by certificate, and a reader is refused;
// a revoked token is refused at once; every action is audited.
func TestConsoleLogsIn(t *testing.T) {
	s, reader := newSecureConsole(t), t.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: reader, CA: s.certs, Name: "rita",
		Role: certs.Reader}); err != nil {
		t.Fatal(err)
	}
	nobody := s.browser("")
	s.undo("nobody", nobody, "", 401)
	ann, rita := s.token("ann", "operator"), s.token("rita", "reader")
	_, cookie, answer := s.post(nobody, "/api/v1/login", "", `{"token":"`+ann+`"}`)
	if !strings.HasPrefix(cookie, "__Host-percolator_token=") || answer["may_act"] != true {
		t.Fatalf("%s %v", cookie, answer)
	}
	s.undo("an operator's token", nobody, cookie, 200)
	answer = s.undo("a reader's token", nobody, "__Host-percolator_token="+rita, 403)
	if text, _ := answer["error"].(string); !strings.Contains(text, "token create NAME --role operator") {
		t.Errorf("a reader's token: %v", answer)
	}
	s.undo("an operator's certificate", s.browser(s.certs), "", 200)
	s.undo("a reader's certificate", s.browser(reader), "", 403)
	// A certificate from before there were roles is an operator's, and is recorded.
	s.undo("a certificate without a role", s.browser(certstest.OldClient(t, s.certs)), "", 200)
	if got := s.node.Status().Roleless; len(got) != 1 || got[0].Name != "ann" ||
		got[0].SeenUnixMs == 0 {
		t.Errorf("who has logged in without a role is not counted: %v", got)
	}
	if code, _, answer := s.post(nobody, "/api/v1/actions/tablet-split", cookie,
		`{"table":"none","row":"YQ=="}`); code != 400 {
		t.Errorf("a table that is not there: %d %v", code, answer)
	}
	if _, err := s.admins.RevokeToken(t.Context(), &pb.RevokeTokenRequest{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	s.undo("REVOKED: the token is answered", nobody, cookie, 401)
	s.audited(
		"method=CreateToken outcome=done role=operator name=x by=certificate",
		"method=DrainNode outcome=done role=operator name=ann by=token from=127.0.0.1:",
		"method=DrainNode outcome=refused role=reader name=rita by=token",
		"method=DrainNode outcome=done role=operator name=x by=certificate",
		"method=DrainNode outcome=refused role=reader name=rita by=certificate",
		"method=SplitTablet outcome=refused role=operator name=ann by=token",
		"method=RevokeToken outcome=done",
	)
	if strings.Contains(s.log.String(), ann[11:]) || strings.Contains(s.log.String(), rita[11:]) {
		t.Error("a token is in the log")
	}
}

// TestConsoleRefusesForeigners: a certificate of another authority cannot connect.
func TestConsoleRefusesForeigners(t *testing.T) {
	s := newSecureConsole(t)
	nobody, stranger := s.browser(""), s.browser(certstest.Folder(t, "127.0.0.1"))
	s.undo("nobody, who is served", nobody, "", 401)
	stranger.Transport.(*http.Transport).TLSClientConfig.RootCAs =
		nobody.Transport.(*http.Transport).TLSClientConfig.RootCAs
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+s.node.HTTPAddr()+"/api/v1/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := stranger.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("FOREIGN: another authority's certificate is served: %s", resp.Status)
	}
}

// TestConsoleRefusesRevoked: a revoked certificate is refused from then on, also on an existing
// connection.
func TestConsoleRefusesRevoked(t *testing.T) {
	dir, olga := certstest.Folder(t, "127.0.0.1"), t.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: olga, CA: dir, Name: "olga",
		Role: certs.Operator}); err != nil {
		t.Fatal(err)
	}
	n := open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs, cfg.HTTPTLS = false, dir, true
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
	})
	files, err := certs.Open(certs.ClientSource(olga), nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: files.Client()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	act := func() (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+n.HTTPAddr()+"/api/v1/actions/node-drain",
			strings.NewReader(fmt.Sprintf(`{"node_id":%d,"undo":true}`, n.Status().NodeId)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Percolator-Console", "1")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, text := act(); code != 200 {
		t.Fatal(code, text)
	}
	if _, err := certs.Revoke(dir, []string{filepath.Join(olga, certs.ClientCert)},
		time.Now()); err != nil {
		t.Fatal(err)
	}
	code, text := act()
	for begin := time.Now(); code == 200 && time.Since(begin) < 20*time.Second; {
		code, text = act()
	}
	if code != 401 || !strings.Contains(text, "revoked") {
		t.Errorf("REVOKED-ACTS: %d %s", code, text)
	}
	if got := n.Status().Revoked; got.GetCount() != 1 || got.GetDigest() == "" {
		t.Errorf("its status does not tell of the list: %v", got)
	}
}

// TestHTTPLogin: with the policy's login, only health pages and the console's own files are served
// without one; any role suffices.
func TestHTTPLogin(t *testing.T) {
	n := open(t, "", func(cfg *node.Config) {
		cfg.Listen, cfg.HTTP, cfg.Pprof = "127.0.0.1:0", "127.0.0.1:0", true
	})
	c, err := rpc.Dial(t.Context(), []string{n.Addr()}, rpc.ClientConfig{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	operators := pb.NewAdminClient(c.AdminConn())
	secret, hash := certs.NewToken()
	if _, err := operators.CreateToken(t.Context(), &pb.CreateTokenRequest{
		Name: "rita", Role: "reader", TtlMs: time.Hour.Milliseconds(), Hash: hash,
	}); err != nil {
		t.Fatal(err)
	}
	get := func(path, token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+n.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	told := []string{
		"/metrics", "/api/v1/status", "/api/v1/cluster", "/api/v1/cluster/stream", "/api/v1/tablets",
		"/api/v1/contended", "/debug/pprof/",
	}
	always := []string{"/livez", "/readyz", "/", "/console/console.js", "/api/v1/session"}
	for _, closed := range []bool{false, true, false} {
		if _, err := operators.ClusterPolicy(t.Context(), &pb.ClusterPolicyRequest{
			Set: &pb.Policy{HttpLogin: proto.Bool(closed)},
		}); err != nil {
			t.Fatal(err)
		}
		for _, path := range append(told, always...) {
			want := 200
			if closed && slices.Contains(told, path) {
				want = 401
			}
			if got := get(path, ""); got != want {
				t.Errorf("TOLD-TO-ALL: closed %v: %s: %d", closed, path, got)
			}
			if got := get(path, secret); got != 200 {
				t.Errorf("closed %v: a reader's %s: %d", closed, path, got)
			}
			if got := get(path, "percolator_x"); closed && want == 401 && got != 401 {
				t.Errorf("TOLD-TO-ALL: %s with a wrong token: %d", path, got)
			}
		}
	}
}
