package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	gw "github.com/percolator-go/percolator/api/gateway/v1"
	"github.com/percolator-go/percolator/internal/rpc"
	"github.com/percolator-go/percolator/internal/txn"
)

// short are timeouts of tests.
func short(cfg *Config) {
	cfg.timing = timing{header: 200 * time.Millisecond, read: 200 * time.Millisecond, write: 200 * time.Millisecond}
}

// connect opens a connection and sends text on it.
func (s *served) connect(text string) net.Conn {
	s.Helper()
	c, err := net.Dial("tcp", s.server.Addr())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		s.Fatal(err)
	}
	return c
}

// ends requires that the server closes the connection soon, and returns what it has sent before.
func (s *served) ends(what string, c net.Conn) string {
	s.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	text, err := io.ReadAll(c)
	if late, ok := err.(net.Error); ok && late.Timeout() {
		s.Errorf("SLOW-CLIENT-KEPT: %s keeps its connection", what)
	}
	return string(text)
}

// idle waits until no call is running, and fails the test after ten seconds.
func (s *served) idle(what string) {
	s.Helper()
	running := func() int {
		all := s.server.service.callers
		all.mu.Lock()
		defer all.mu.Unlock()
		return all.calls
	}
	for began := time.Now(); running() > 0; <-time.After(10 * time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			s.Fatalf("SLOW-CLIENT-KEPT: %s keeps its call", what)
		}
	}
}

const readHeader = "POST /percolator.gateway.v1.Gateway/Read HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// TestSlowClients: clients that send slowly, read slowly or send nothing lose their connections.
func TestSlowClients(t *testing.T) {
	s := serve(t, short)
	for what, text := range map[string]string{
		"half a header": readHeader, "nothing": "", "half a preface": "PRI * HTTP/2.0\r\n\r\nSM",
		"half a body":                   readHeader + "Content-Length: 100\r\n\r\n{",
		"a chunked body without an end": readHeader + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		s.ends(what, s.connect(text))
	}
	// A scan whose answer exceeds the buffers of the connection.
	large := strings.Repeat("v", 1<<20)
	for i := range 24 {
		// On a busy machine an honest client can exceed the short limits too.
		for {
			_, err := s.transact(&gw.TransactRequest{Writes: []*gw.CellWrite{write(fmt.Sprint(i), large), write("small", "v")}})
			if err == nil {
				break
			}
			if code := connect.CodeOf(err); code != connect.CodeDeadlineExceeded && code != connect.CodeUnavailable {
				t.Fatal(err)
			}
		}
	}
	body := "\x00\x00\x00\x00\x17" + `{"range":{"table":"t"}}`
	c := s.connect(strings.Replace(strings.Replace(readHeader, "/Read", "/Scan", 1), "/json", "/connect+json", 1) +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	if line, err := bufio.NewReader(io.LimitReader(c, 64)).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	s.idle("a client that does not read")
	if s.get("small") != "v" {
		t.Error("others are not served")
	}
}

// TestLargeRequests: what exceeds the bounds of a message, of headers or of memory is refused.
func TestLargeRequests(t *testing.T) {
	s := serve(t, nil)
	if code, answer := s.post("Gateway/Transact", `{"name":"`+strings.Repeat("x", maxMessage)+`"}`); code != 400 ||
		!strings.Contains(answer, "REASON_TOO_LARGE") || strings.Contains(answer, "maybeCommitted") {
		t.Errorf("a large message: %d %.200s", code, answer)
	}
	both := &http.Protocols{}
	both.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: both}}
	defer two.CloseIdleConnections()
	for name, client := range map[string]gw.GatewayClient{
		"connect": gw.NewGatewayClient(s.http, s.url), "web": gw.NewGatewayClient(s.http, s.url, connect.WithGRPCWeb()),
		"grpc": gw.NewGatewayClient(two, s.url, connect.WithGRPC()),
	} {
		large := connect.NewRequest(&gw.TransactRequest{Name: strings.Repeat("x", maxMessage+64)})
		if _, err := client.Transact(t.Context(), large); reason(err) != gw.Failure_REASON_TOO_LARGE {
			t.Errorf("a large message by %s: %v", name, err)
		}
	}
	if code, answer := s.post("Gateway/Transact", "{}", "X-Large", strings.Repeat("x", 4*maxHeaders)); code != 431 {
		t.Errorf("a large header: %d %.200s", code, answer)
	}
	if code, answer := s.post("Gateway/Transact", "\x1f\x8b", "Content-Encoding", "gzip"); code != 501 && code != 415 {
		t.Errorf("a compressed request, of any size: %d %.200s", code, answer)
	}
	bodies := s.server.service.bodies
	if !bodies.TryAcquire(bodyMemory) {
		t.Fatal("memory of requests is held while none is running")
	}
	if code, answer := s.post("Gateway/Transact", "{}"); code != 429 || !strings.Contains(answer, "REASON_OVERLOADED") {
		t.Errorf("without memory: %d %.200s", code, answer)
	}
	bodies.Release(bodyMemory)
	if code, answer := s.post("Gateway/Transact", "{}"); code != 200 {
		t.Errorf("with memory: %d %.200s", code, answer)
	}
	if resp, err := s.transact(&gw.TransactRequest{Name: strings.Repeat("x", maxName+1)}); reason(err) != gw.Failure_REASON_INVALID {
		t.Errorf("a long name: %v, %v", resp, err)
	}
}

// TestCallsAreBounded: calls beyond the bounds of all clients, and of one, are refused.
func TestCallsAreBounded(t *testing.T) {
	s := serve(t, nil)
	s.set("a", "1")
	all := s.server.service.callers
	add := func(calls, own int) {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.calls += calls
		for _, c := range all.byID {
			c.calls += own
		}
	}
	for _, n := range [][2]int{{maxCalls, 0}, {0, maxOwnCalls}} {
		add(n[0], n[1])
		if code, answer := s.post("Gateway/Read", "{}"); code != 429 || !strings.Contains(answer, "REASON_OVERLOADED") {
			t.Errorf("with %d calls of all and %d of its own: %d %s", n[0], n[1], code, answer)
		}
		add(-n[0], -n[1])
	}
	if code, answer := s.post("Gateway/Read", "{}"); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
}

// TestCallersAreBounded: a new caller takes the place of one that is not used, and gets none if all are.
func TestCallersAreBounded(t *testing.T) {
	cluster := serve(t, nil)
	opened := 0
	all := newCallers(func(rpc.Caller) *txn.Client {
		opened++
		return txn.NewClient(cluster.cluster.Process(0, uint64(opened)), txn.Config{})
	})
	defer all.close(t.Context())
	var ends []func()
	for i := range maxCallers {
		_, end, err := all.call(rpc.Caller{Name: fmt.Sprint(i), By: rpc.ByCertificate})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	if _, _, err := all.call(rpc.Caller{Name: "x", By: rpc.ByCertificate}); err == nil {
		t.Error("a caller too many")
	}
	ends[3]()
	_, end, err := all.call(rpc.Caller{Name: "x", By: rpc.ByCertificate})
	if err != nil || len(all.byID) != maxCallers {
		t.Errorf("%v; %d callers", err, len(all.byID))
	}
	for _, end := range append(ends[:3:3], append(ends[4:], end)...) {
		end()
	}
}

// TestFlood: connections that make no call do not keep a caller out.
func TestFlood(t *testing.T) {
	s := serve(t, nil)
	for range 700 {
		s.connect("POST / HTTP/1.1\r\n")
	}
	if code, answer := s.post("Gateway/Read", "{}"); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
}

// TestOrigins: browsers may call from configured origins only. A page is refused also if its own
// name resolves to the node.
func TestOrigins(t *testing.T) {
	s := serve(t, func(cfg *Config) { cfg.Origins = []string{"https://app.example"} })
	ask := func(method, origin, host string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, s.url+"/percolator.gateway.v1.Gateway/Read", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Content-Type", "application/json")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := s.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for _, c := range []struct {
		method, origin string
		code           int
		allowed        string
	}{
		{"OPTIONS", "https://app.example", 204, "https://app.example"},
		{"POST", "https://app.example", 200, "https://app.example"},
		{"OPTIONS", "https://evil.example", 403, ""},
		{"POST", "https://evil.example", 403, ""},
		{"POST", "http://app.example", 403, ""},
		{"POST", "null", 403, ""},
		{"POST", "", 200, ""},
		{"GET", "", 405, ""},
	} {
		resp := ask(c.method, c.origin, "")
		if resp.StatusCode != c.code || resp.Header.Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("ORIGIN-IGNORED: %s from %q: %d, %v", c.method, c.origin, resp.StatusCode, resp.Header)
		}
	}
	events := func(host string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/events?after=x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := s.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if evil, own := events("evil.example"), events("localhost:1"); evil != 421 || own != 400 {
		t.Errorf("ORIGIN-IGNORED: events for a page whose name is the node's: %d; for the node's own name: %d", evil, own)
	}
	if resp := ask("POST", "http://evil.example", "evil.example"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("ORIGIN-IGNORED: a page whose name is the node's: %d", resp.StatusCode)
	}
}

// TestTokenOf: only the scheme Bearer has a token; it may be written in any case (RFC 9110, 11.1).
func TestTokenOf(t *testing.T) {
	for header, want := range map[string]string{
		"": "", "Bearer abc": "abc", "bearer  abc": "abc", "Basic dXNlcjpw": "", "abc": "", "Bearer": "",
	} {
		req := &http.Request{Header: http.Header{"Authorization": {header}}}
		if got := tokenOf(req); got != want {
			t.Errorf("the token of %q is %q, want %q", header, got, want)
		}
	}
}
