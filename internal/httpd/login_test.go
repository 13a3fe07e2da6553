package httpd_test

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
)

// operators implements Operators with some valid tokens and records actions.
type operators struct {
	mu   sync.Mutex
	did  []string
	fail error
}

// alikeGood is a valid token with the same beginning as wrong ones.
const alikeGood = "percolator_AAAAgood"

func (o *operators) Identify(_ context.Context, token string,
	cert *x509.Certificate) (httpd.User, error) {
	switch {
	case cert != nil:
		return httpd.User{Name: cert.Subject.CommonName, How: "certificate"}, nil
	case token == alikeGood:
		return httpd.User{Name: "eve", Role: "reads", How: "token"}, nil
	case token == "good" || token == "reads":
		return httpd.User{
			Name: "ann", Role: token, How: "token", Expires: time.UnixMilli(4e12), MayAct: token == "good",
		}, nil
	case token == "away":
		return httpd.User{}, &httpd.Refusal{Status: 503, Code: httpd.CodeUnavailable, Text: "no quorum"}
	}
	return httpd.User{}, &httpd.Refusal{Status: 401, Code: httpd.CodeLogin, Text: "it has expired"}
}

func (o *operators) Act(_ context.Context, who httpd.User, from, method string, req,
	resp proto.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !who.MayAct {
		return &httpd.Refusal{Status: 403, Code: httpd.CodePermission, Text: "takes an operator"}
	}
	o.did = append(o.did, fmt.Sprintf("%s %s %s %v", who.Name, from, method, req))
	if out, ok := resp.(*pb.SetLogLevelResponse); ok {
		out.Before = "INFO"
	}
	return o.fail
}

// done returns the actions since the last call.
func (o *operators) done() (did []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	did, o.did = o.did, nil
	return did
}

// console serves the paths for the operators, under the name db1.test.
func console(o httpd.Operators, logger *slog.Logger) http.Handler {
	return httpd.Handler(httpd.Options{
		Status:    func(context.Context) *pb.NodeStatusResponse { return sample() },
		Ready:     func(context.Context) error { return nil },
		Metrics:   prometheus.NewRegistry(),
		Hosts:     func() []string { return []string{"db1.test"} },
		Operators: o, Logger: logger,
	})
}

// post sends a request as the node's own page does, changed by edit; its answer is JSON.
func post(t *testing.T, h http.Handler, path, body string,
	edit func(*http.Request)) (code int, answer map[string]any, header http.Header) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path,
		strings.NewReader(body))
	req.Host, req.RemoteAddr = "db1.test:7803", "127.0.0.1:4000"
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Percolator-Console", "1")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Origin", "http://db1.test:7803")
	req.Header.Set("Cookie", "percolator_token=good")
	if edit != nil {
		edit(req)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	_ = json.Unmarshal(w.Body.Bytes(), &answer) // 421 and 405 are text
	return w.Code, answer, w.Result().Header
}

const levelPath, level = "/api/v1/actions/log-level", `{"level":"debug"}`

// TestActions: each action makes its call with the request, under the name and address of the
// login; unknown actions and requests of a wrong type are refused.
func TestActions(t *testing.T) {
	o := &operators{}
	h := console(o, nil)
	for path, c := range map[string]struct{ body, method, request string }{
		"observer-control": {`{"name":"count","paused":true}`, "Admin/ControlObserver",
			`name:"count"`},
		"observer-replay": {`{"name":"count","action":"ACTION_START"}`, "Admin/Backfill",
			`action:ACTION_START`},
		"notify-replay": {`{"name":"count"}`, "Admin/ReplayParked", `name:"count"`},
		"row-replay":    {`{"name":"count","row":"/wA="}`, "Admin/ReplayRow", `row:"\xff\x00"`},
		"node-drain":    {`{"node_id":3,"undo":true}`, "Admin/DrainNode", `node_id:3`},
		"tablet-move":   {`{"tabletId":"7","to_node":2}`, "Admin/MoveTablet", `tablet_id:7`},
		"tablet-split":  {`{"table":"t","row":"/wA="}`, "Percolator/SplitTablet", `row:"\xff\x00"`},
		"log-level":     {level, "Admin/SetLogLevel", `level:"debug"`},
	} {
		code, answer, _ := post(t, h, "/api/v1/actions/"+path, c.body, nil)
		did := o.done()
		if code != 200 || len(did) != 1 || !strings.Contains(did[0], "percolator.v1."+c.method) ||
			!strings.Contains(strings.ReplaceAll(did[0], ":  ", ":"), c.request) ||
			!strings.HasPrefix(did[0], "ann 127.0.0.1:4000 ") {
			t.Errorf("%s: %d %v %v", path, code, answer, did)
		}
	}
	if _, answer, _ := post(t, h, levelPath, level, nil); answer["before"] != "INFO" {
		t.Errorf("answer %v", answer)
	}
	o.done()
	for _, c := range []struct {
		path, body string
		code       int
		says       string
	}{
		{"/api/v1/actions/drop-table", "{}", 404, "known actions are log-level"},
		{"/api/v1/actions/..%2flog-level", "{}", 404, "known actions are"},
		{levelPath, `{"level":1}`, 400, "does not match the action"},
		{levelPath, `{"unknown":"x"}`, 400, "does not match the action"},
		{levelPath, `level=debug`, 400, "does not match the action"},
		{levelPath, strings.Repeat(`{"level":`, 1000), 400, "does not match the action"},
		{"/api/v1/actions/observer-control", `{"name":"count","retire":true}`, 400, "observer retire"},
		{levelPath, `{"level":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "64 KiB"},
		{"/api/v1/login", strings.Repeat("x", 65<<10), 413, "64 KiB"},
	} {
		code, answer, _ := post(t, h, c.path, c.body, nil)
		if code != c.code || !strings.Contains(fmt.Sprint(answer["error"]), c.says) {
			t.Errorf("POST %s %.30s: %d %v", c.path, c.body, code, answer)
		}
	}
	for path, refusal := range map[string]*httpd.Refusal{
		levelPath:                       {Status: 400, Code: httpd.CodeInvalid, Text: "no such level"},
		"/api/v1/actions/notify-replay": {Status: 503, Code: httpd.CodeUnavailable, Text: "no quorum"},
	} {
		o.fail = refusal
		code, answer, _ := post(t, h, path, "{}", nil)
		if code != refusal.Status || answer["error"] != refusal.Text || answer["code"] != refusal.Code {
			t.Errorf("%d %v", code, answer)
		}
	}
	o.done()
}

// TestForeignPagesChangeNothing: a request that another site makes a browser send changes nothing,
// although it carries the cookie; nor does one under a foreign host name (DNS rebinding), without a
// login, or without the role.
func TestForeignPagesChangeNothing(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	del := func(names ...string) func(*http.Request) {
		return func(r *http.Request) {
			for _, name := range names {
				r.Header.Del(name)
			}
		}
	}
	for what, c := range map[string]struct {
		code int
		edit func(*http.Request)
	}{
		"cross-site":             {403, set("Sec-Fetch-Site", "cross-site")},
		"another port or domain": {403, set("Sec-Fetch-Site", "same-site")},
		"an old browser": {403, func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://evil.test")
		}},
		"a sandboxed frame": {403, func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "null")
		}},
		"another port's page, in an old browser": {403, func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", "http://db1.test:9999")
		}},
		"a form":              {415, set("Content-Type", "application/x-www-form-urlencoded")},
		"a form of text":      {415, set("Content-Type", "text/plain")},
		"no type":             {415, del("Content-Type")},
		"a request of before": {403, del("X-Percolator-Console")},
		"rebound DNS":         {421, func(r *http.Request) { r.Host = "evil.test" }},
		"nobody":              {401, del("Cookie")},
		"an old token":        {401, set("Cookie", "percolator_token=old")},
		"meta is away":        {503, set("Cookie", "percolator_token=away")},
		"a reader":            {403, set("Cookie", "percolator_token=reads")},
		"plain text":          {403, func(r *http.Request) { r.RemoteAddr = "10.0.0.7:1" }},
		"another method":      {405, func(r *http.Request) { r.Method = http.MethodPut }},
		"GET":                 {405, func(r *http.Request) { r.Method = http.MethodGet }},
	} {
		o := &operators{}
		code, answer, _ := post(t, console(o, nil), levelPath, level, c.edit)
		if did := o.done(); code != c.code || len(did) != 0 {
			t.Errorf("FORGED: %s: %d, want %d: %v; done: %v", what, code, c.code, answer, did)
		}
	}
	// Programs are not browsers.
	o := &operators{}
	code, answer, _ := post(t, console(o, nil), levelPath, level, func(r *http.Request) {
		del("Sec-Fetch-Site", "Origin", "Cookie")(r)
		r.Header.Set("Authorization", "Bearer good")
	})
	if did := o.done(); code != 200 || len(did) != 1 {
		t.Errorf("curl: %d %v", code, answer)
	}
}

// TestLogin: a token becomes a cookie that scripts and other sites cannot use, logging out removes
// it, and session returns the login or why there is none.
func TestLogin(t *testing.T) {
	h := console(&operators{}, nil)
	code, answer, header := post(t, h, "/api/v1/login", `{"token":"good"}`, nil)
	cookie := header.Get("Set-Cookie")
	if code != 200 || answer["name"] != "ann" || answer["may_act"] != true ||
		answer["expires_unix_ms"] != 4e12 {
		t.Errorf("%d %v", code, answer)
	}
	for _, part := range []string{"percolator_token=good", "HttpOnly", "SameSite=Strict", "Path=/",
		"Expires=Tue, 02 Oct 2096"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie lacks %s: %s", part, cookie)
		}
	}
	for _, body := range []string{"", "{}", "[]", `{"token":1}`} {
		if code, answer, _ := post(t, h, "/api/v1/login", body, nil); code != 400 {
			t.Errorf("%s: %d %v", body, code, answer)
		}
	}
	_, _, header = post(t, h, "/api/v1/logout", "{}", nil)
	if cookie := header.Get("Set-Cookie"); !strings.Contains(cookie, "percolator_token=;") ||
		!strings.Contains(cookie, "1970") {
		t.Errorf("the cookie stays: %s", cookie)
	}
	session := func(cookie, site string) (code int, answer map[string]any, header http.Header) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/session", nil)
		req.Host, req.RemoteAddr = "localhost", "127.0.0.1:4000"
		req.Header.Set("Cookie", cookie)
		req.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		return w.Code, answer, w.Result().Header
	}
	if _, answer, _ := session("percolator_token=good", "same-origin"); answer["name"] != "ann" ||
		answer["how"] != "token" || answer["problem"] != "" {
		t.Errorf("logged in: %v", answer)
	}
	code, answer, header = session("percolator_token=old", "same-origin")
	if code != 200 || answer["may_act"] != false || answer["problem"] != "it has expired" ||
		!strings.Contains(header.Get("Set-Cookie"), "percolator_token=;") {
		t.Errorf("expired: %d %v", code, answer)
	}
	if _, answer, _ := session("x=y", "none"); answer["name"] != "" || answer["problem"] != "" {
		t.Errorf("nobody: %v", answer)
	}
	if code, _, _ := session("percolator_token=good", "cross-site"); code != 403 {
		t.Errorf("another site learns who is logged in: %d", code)
	}
}

// TestValidTokensAreNotRefused: after any number of wrong tokens from an address, with the same
// beginning as a valid one or not, the valid one is accepted; the log has each wrong one, as text.
func TestValidTokensAreNotRefused(t *testing.T) {
	var log strings.Builder
	h := console(&operators{}, slog.New(slog.NewTextHandler(&log, nil)))
	try := func(token string) int {
		code, _, _ := post(t, h, "/api/v1/login", `{"token":"`+token+`"}`, func(r *http.Request) {
			r.RemoteAddr = "127.0.0.1:1"
		})
		return code
	}
	for i := range 30 {
		if code := try([]string{"percolator_AAAA", "percolator_"}[i%2] + fmt.Sprintf("%d\\u001b[2J", i)); code != 401 {
			t.Errorf("the guess %d: %d", i, code)
		}
	}
	for _, token := range []string{"good", alikeGood} {
		if code := try(token); code != 200 {
			t.Errorf("VALID-REFUSED: %s after many wrong ones: %d", token, code)
		}
	}
	if text := log.String(); strings.ContainsAny(text, "\x1b") || strings.Contains(text, "AAAA") ||
		strings.Count(text, "refused") != 30 {
		t.Errorf("log:\n%s", text)
	}
}

// slowOperators blocks lookups of tokens until wait is closed.
type slowOperators struct {
	operators
	wait           chan struct{}
	lookUps, under atomic.Int64
}

func (o *slowOperators) Identify(ctx context.Context, token string,
	cert *x509.Certificate) (httpd.User, error) {
	o.lookUps.Add(1)
	o.under.Add(1)
	defer o.under.Add(-1)
	<-o.wait
	return o.operators.Identify(ctx, token, cert)
}

// TestManyAtOnce: all concurrent requests are answered, with few lookups of tokens at a time. A
// wrong token sent by many requests is looked up few times.
func TestManyAtOnce(t *testing.T) {
	const many = 100
	for what, token := range map[string]func(int) string{
		"right":     func(int) string { return "good" },
		"wrong":     func(i int) string { return fmt.Sprint("bad", i) },
		"one wrong": func(int) string { return "bad" },
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &slowOperators{wait: make(chan struct{})}
			h := closed(o)
			codes := make(chan int, many)
			for i := range many {
				go func() { codes <- read(t, h, token(i)) }()
			}
			synctest.Wait()
			if n := o.under.Load(); n != httpd.MaxLookUps {
				t.Errorf("%s: %d look-ups are under way", what, n)
			}
			close(o.wait)
			count := map[int]int{}
			for range many {
				count[<-codes]++
			}
			want := map[string]int{"right": 200, "wrong": 401, "one wrong": 401}[what]
			if n := o.lookUps.Load(); count[want] != many || what == "one wrong" && n > httpd.MaxLookUps {
				t.Errorf("%s: %d looked up, answers: %v", what, n, count)
			}
			if after := read(t, h, "good"); after != 200 {
				t.Errorf("VALID-REFUSED: %s: a valid token after them: %d", what, after)
			}
		})
	}
}

// TestSuspectsWaitForEachOther: while a token is looked up whose beginning was shared by many wrong
// ones, others with that beginning wait, and tokens with other beginnings or known as valid do not.
func TestSuspectsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &slowOperators{wait: make(chan struct{})}
		close(o.wait)
		h := closed(o)
		const alike = "percolator_AAAA"
		for i := range 10 {
			read(t, h, fmt.Sprint(alike, i))
		}
		read(t, h, "good")
		o.wait = make(chan struct{})
		codes := make(chan int, 8)
		for _, token := range []string{alike + "x", alike + "y", alike + "z", "good", "percolator_BBBB"} {
			go func() { codes <- read(t, h, token) }()
		}
		synctest.Wait()
		if n := o.under.Load(); n != 3 { // one of those with the same beginning
			t.Errorf("%d look-ups are under way", n)
		}
		close(o.wait)
		for range 5 {
			<-codes
		}
	})
}

// TestWrongTokenAgain: a page that keeps sending a revoked token costs no lookups and does not
// block valid tokens from the same address.
func TestWrongTokenAgain(t *testing.T) {
	o := &slowOperators{wait: make(chan struct{})}
	close(o.wait)
	h := closed(o)
	for range 50 {
		if code := read(t, h, "revoked"); code != 401 {
			t.Fatalf("the revoked one: %d", code)
		}
	}
	if n := o.lookUps.Load(); n != 1 {
		t.Errorf("it was looked up %d times", n)
	}
	if code := read(t, h, "good"); code != 200 {
		t.Errorf("a right one after it: %d", code)
	}
}

// closed serves the paths to logged-in clients only.
func closed(o httpd.Operators) http.Handler {
	return httpd.Handler(httpd.Options{
		Status:    func(context.Context) *pb.NodeStatusResponse { return sample() },
		Ready:     func(context.Context) error { return nil },
		Metrics:   prometheus.NewRegistry(),
		Operators: o, Closed: func(*http.Request) bool { return true },
	})
}

// read sends a request from one address and returns the answer's status.
func read(t *testing.T, h http.Handler, token string) int {
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/status", nil)
	req.Host, req.RemoteAddr = "localhost", "127.0.0.1:4000"
	req.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// revocable is operators with revocable tokens.
type revocable struct {
	operators
	revoked atomic.Bool
}

func (o *revocable) Identify(ctx context.Context, token string,
	cert *x509.Certificate) (httpd.User, error) {
	if o.revoked.Load() {
		token = "old"
	}
	return o.operators.Identify(ctx, token, cert)
}

// TestStreamsEnd: a stream ends when the listener is closed to clients without a login, and when
// its token is revoked.
func TestStreamsEnd(t *testing.T) {
	o := &revocable{}
	var shut atomic.Bool
	address := quick(t, httpd.Options{
		Cluster: (&told{status: &pb.ClusterStatusResponse{}}).cluster, Operators: o,
		Closed: func(*http.Request) bool { return shut.Load() },
	}, time.Second, 10*time.Millisecond)
	for what, c := range map[string]struct {
		token string
		end   func()
	}{
		"nobody's":           {"", func() { shut.Store(true) }},
		"of a revoked token": {"reads", func() { o.revoked.Store(true) }},
	} {
		shut.Store(c.token != "")
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		header := http.Header{}
		if c.token != "" {
			header.Set("Authorization", "Bearer "+c.token)
		}
		body := bufio.NewReader(request(ctx, t, address+"/api/v1/cluster/stream", header).Body)
		event(t, body)
		event(t, body)
		c.end()
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Errorf("TOLD-ON: a stream, %s: %v", what, err)
		}
		cancel()
	}
}

// TestSlowBodies: a client that does not send its announced body holds a connection only for the
// time limit of a request.
func TestSlowBodies(t *testing.T) {
	s, err := httpd.OpenQuick(httpd.Options{
		Addr: "127.0.0.1:0", Operators: &operators{}, Metrics: prometheus.NewRegistry(),
	}, 100*time.Millisecond, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"+
		"\r\nX-Percolator-Console: 1\r\nContent-Length: 100\r\n\r\n{", levelPath)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s", resp.Status)
		}
	}
	if _, err := io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open: %v", err)
	}
}
