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

// TestConsoleLogsIn: over TLS an operator acts by token or by certificate, with the roles
// that either has; a token that is revoked is refused at once; every act is audited.
func TestConsoleLogsIn(t *testing.T) {
	dir, reader := certstest.Folder(t, "127.0.0.1"), t.TempDir()
	if _, err := certs.CreateClient(certs.Request{Dir: reader, CA: dir, Name: "rita",
		Role: certs.Reader}); err != nil {
		t.Fatal(err)
	}
	var log sharedLog
	n := open(t, "", func(cfg *node.Config) {
		cfg.Insecure, cfg.Certs, cfg.HTTPTLS = false, dir, true
		cfg.Listen, cfg.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		cfg.LogLevel = &slog.LevelVar{}
		cfg.LogLevel.Set(slog.LevelError)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: cfg.LogLevel}))
	})
	source := certs.ClientSource(dir)
	c, err := rpc.Dial(t.Context(), []string{n.Addr()},
		rpc.ClientConfig{CertFile: source.Cert, KeyFile: source.Key, CAFile: source.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	operators := pb.NewAdminClient(c.AdminConn())
	token := func(name, role string) string {
		secret, hash := certs.NewToken()
		_, err := operators.CreateToken(t.Context(), &pb.CreateTokenRequest{
			Name: name, Role: role, TtlMs: time.Hour.Milliseconds(), Hash: hash,
		})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	browser := func(folder string) *http.Client {
		files, err := certs.Open(certs.Source{CA: source.CA}, nil)
		if folder != "" {
			files, err = certs.Open(certs.ClientSource(folder), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return &http.Client{
			Transport: &http.Transport{TLSClientConfig: files.Client(), DisableKeepAlives: true},
			Timeout:   30 * time.Second,
		}
	}
	post := func(client *http.Client, path, cookie, body string) (int, string, map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+n.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Percolator-Console", "1")
		if cookie != "" {
			req.Header.Set("Cookie", cookie)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var answer map[string]any
		_ = json.Unmarshal(text, &answer)
		set, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
		return resp.StatusCode, set, answer
	}
	const action = "/api/v1/actions/node-drain"
	undo := fmt.Sprintf(`{"node_id":%d,"undo":true}`, n.Status().NodeId)
	nobody := browser("")
	if code, _, answer := post(nobody, action, "", undo); code != 401 {
		t.Errorf("nobody: %d %v", code, answer)
	}
	ann, rita := token("ann", "operator"), token("rita", "reader")
	_, cookie, answer := post(nobody, "/api/v1/login", "", `{"token":"`+ann+`"}`)
	if !strings.HasPrefix(cookie, "__Host-percolator_token=") || answer["may_act"] != true {
		t.Fatalf("%s %v", cookie, answer)
	}
	if code, _, answer := post(nobody, action, cookie, undo); code != 200 {
		t.Errorf("an operator's token: %d %v", code, answer)
	}
	if code, _, answer := post(nobody, action, "__Host-percolator_token="+rita, undo); code != 403 ||
		!strings.Contains(answer["error"].(string), "token create NAME --role operator") {
		t.Errorf("a reader's token: %d %v", code, answer)
	}
	if code, _, answer := post(browser(dir), action, "", undo); code != 200 {
		t.Errorf("an operator's certificate: %d %v", code, answer)
	}
	if code, _, answer := post(browser(reader), action, "", undo); code != 403 {
		t.Errorf("a reader's certificate: %d %v", code, answer)
	}
	// A certificate of before there were roles is an operator's, and is taken note of.
	if code, _, answer := post(browser(certstest.OldClient(t, dir)), action, "", undo); code != 200 {
		t.Errorf("a certificate without a role: %d %v", code, answer)
	}
	if got := n.Status().Roleless; len(got) != 1 || got[0].Name != "ann" || got[0].SeenUnixMs == 0 {
		t.Errorf("who has logged in without a role is not counted: %v", got)
	}
	if code, _, answer := post(nobody, "/api/v1/actions/tablet-split", cookie,
		`{"table":"none","row":"YQ=="}`); code != 400 {
		t.Errorf("a table that is not there: %d %v", code, answer)
	}
	if _, err := operators.RevokeToken(t.Context(), &pb.RevokeTokenRequest{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	if code, _, answer := post(nobody, action, cookie, undo); code != 401 {
		t.Errorf("REVOKED: the token is answered %d %v", code, answer)
	}
	for _, line := range []string{
		"method=CreateToken outcome=done role=operator name=x by=certificate",
		"method=DrainNode outcome=done role=operator name=ann by=token from=127.0.0.1:",
		"method=DrainNode outcome=refused role=reader name=rita by=token",
		"method=DrainNode outcome=done role=operator name=x by=certificate",
		"method=DrainNode outcome=refused role=reader name=rita by=certificate",
		"method=SplitTablet outcome=refused role=operator name=ann by=token",
		"method=RevokeToken outcome=done",
	} {
		if !strings.Contains(log.String(), "msg=audit "+line) {
			t.Errorf("UNAUDITED: %s", line)
		}
	}
	if strings.Contains(log.String(), ann[11:]) || strings.Contains(log.String(), rita[11:]) {
		t.Error("a token is in the log")
	}
	// A certificate of another authority opens no connection.
	foreign := certstest.Folder(t, "127.0.0.1")
	stranger := browser(foreign)
	stranger.Transport.(*http.Transport).TLSClientConfig.RootCAs =
		nobody.Transport.(*http.Transport).TLSClientConfig.RootCAs
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+n.HTTPAddr()+"/api/v1/session", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := stranger.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("FOREIGN: another authority's certificate is served: %s", resp.Status)
	}
}

// TestConsoleRefusesRevoked: a certificate that is revoked counts for nothing from then on, also
// on a connection that was made before.
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
	for begin := time.Now(); code == 200 && time.Since(begin) < 4*time.Second; {
		code, text = act()
	}
	if code != 401 || !strings.Contains(text, "revoked") {
		t.Errorf("REVOKED-ACTS: %d %s", code, text)
	}
	if got := n.Status().Revoked; got.GetCount() != 1 || got.GetDigest() == "" {
		t.Errorf("its status does not tell of the list: %v", got)
	}
}

// TestHTTPLogin: while the cluster's policy says so, nothing but health and the console's own
// files is told to who has not logged in; any role will do.
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
