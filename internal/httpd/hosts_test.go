package httpd_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/httpd"
)

// handler serves a node's paths under the names, without a listener.
func handler(profiles bool, names ...string) http.Handler {
	return httpd.Handler(httpd.Options{
		Status:   func(context.Context) *pb.NodeStatusResponse { return sample() },
		Ready:    func(context.Context) error { return nil },
		Metrics:  prometheus.NewRegistry(),
		Hosts:    func() []string { return names },
		Profiles: profiles,
	})
}

// ask sends the handler one request for a host.
func ask(t *testing.T, h http.Handler, host, path string) (code int, body string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	req.Host = host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

// TestForeignHost: a site whose own name resolves to the node (DNS rebinding) cannot read anything,
// whatever the path. Addresses, localhost and the node's own names are served.
func TestForeignHost(t *testing.T) {
	h := handler(true, "db1.example.com:7800", "Node.Internal", "", ":7800")
	for _, host := range []string{
		"127.0.0.1:7803", "127.0.0.1", "[::1]:7803", "[::1]", "[fe80::1%eth0]:7803", "10.0.0.1:80",
		"localhost", "LocalHost:7803", "localhost.",
		"db1.example.com", "db1.example.com:7803", "DB1.example.com.", "node.internal:1", "",
	} {
		if code, body := ask(t, h, host, "/api/v1/status"); code != http.StatusOK {
			t.Errorf("host %q: %d %s", host, code, body)
		}
	}
	for _, host := range []string{
		"evil.example", "evil.example:7803", "127.0.0.1.evil.example", "localhost.evil.example",
		"db1.example.com.evil.example",
		"example.com", "127.1", "0x7f000001", "2130706433", "user@127.0.0.1",
		strings.Repeat("x", 1000),
	} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/livez", "/debug/pprof/",
			"/none", "/api/v1/cluster", "/api/v1/cluster/stream", "/api/v1/history",
			"/console/console.js"} {
			code, body := ask(t, h, host, path)
			if code != http.StatusMisdirectedRequest || !strings.Contains(body, "--http-host") ||
				len(body) > 500 {
				t.Errorf("host %q: GET %s: %d %s", host, path, code, body)
			}
		}
	}
}

// TestProfiles: profiles are served only if enabled, in the format of the tools.
func TestProfiles(t *testing.T) {
	const host = "127.0.0.1"
	h := handler(false)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap",
		"/debug/pprof/profile?seconds=1"} {
		if code, _ := ask(t, h, host, path); code != http.StatusNotFound {
			t.Errorf("not asked for: GET %s: %d", path, code)
		}
	}
	h = handler(true)
	gzipped := "\x1f\x8b"
	for path, begins := range map[string]string{
		"/debug/pprof/": "profile?seconds=30\n", "/debug/pprof/goroutine?debug=2": "goroutine ",
		"/debug/pprof/heap?gc=1": gzipped, "/debug/pprof/profile?seconds=1": gzipped,
		"/debug/pprof/trace?seconds=1": "go 1.",
	} {
		if code, body := ask(t, h, host, path); code != http.StatusOK ||
			!strings.HasPrefix(body, begins) {
			t.Errorf("GET %s: %d %.20q", path, code, body)
		}
	}
	for path, want := range map[string]int{
		"/debug/pprof/none": 404, "/debug/pprof/profile?seconds=0": 400,
		"/debug/pprof/profile?seconds=301": 400,
		"/debug/pprof/trace?seconds=x":     400, "/debug/pprof/cmdline": 404,
	} {
		if code, body := ask(t, h, host, path); code != want {
			t.Errorf("GET %s: %d %s", path, code, body)
		}
	}
}

// TestOneProfileAtATime: of two concurrent timed profiles one is refused, and the other ends with
// its client.
func TestOneProfileAtATime(t *testing.T) {
	h := handler(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	codes := make(chan int)
	for range 2 {
		go func() {
			req := httptest.NewRequestWithContext(ctx, http.MethodGet,
				"/debug/pprof/profile?seconds=300", nil)
			req.Host = "localhost"
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			codes <- w.Code
		}()
	}
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("one of two: %d", code)
	}
	cancel()
	if code := <-codes; code != http.StatusOK {
		t.Errorf("the other: %d", code)
	}
	if code, body := ask(t, h, "localhost",
		"/debug/pprof/profile?seconds=1"); code != http.StatusOK {
		t.Errorf("after them: %d %s", code, body)
	}
}
