package node_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/node"
)

// TestHTTPAnswersToItsNames: HTTP answers for the names in the certificate and those of HTTPHosts,
// and for no other. Profiles are served only if enabled.
func TestHTTPAnswersToItsNames(t *testing.T) {
	get := func(n *node.Node, host, path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+
			n.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		client := &http.Client{
			Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second,
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	certs := certstest.Folder(t, "db1.test")
	n := open(t, "", func(cfg *node.Config) {
		cfg.HTTP, cfg.HTTPHosts = "127.0.0.1:0", []string{"extra.test"}
		cfg.Insecure, cfg.Certs = false, certs
	})
	for host, want := range map[string]int{
		n.HTTPAddr(): 200, "db1.test": 200, "extra.test:80": 200, "evil.test": 421, "test": 421,
	} {
		if got := get(n, host, "/api/v1/status"); got != want {
			t.Errorf("host %s: %d, want %d", host, got, want)
		}
	}
	if got := get(n, "localhost", "/debug/pprof/heap"); got != 404 {
		t.Errorf("a profile that nobody has asked for: %d", got)
	}
	profiled := open(t, "", func(cfg *node.Config) { cfg.HTTP, cfg.Pprof = "127.0.0.1:0", true })
	if got := get(profiled, "localhost", "/debug/pprof/heap"); got != 200 {
		t.Errorf("a profile: %d", got)
	}
	// Rows are for logged-in clients, or for the machine of a node without certificates, where
	// every client can read them.
	for _, data := range []string{"rows", "row", "trace", "contended", "parked"} {
		if got := get(n, "localhost", "/api/v1/"+data+"?table=t"); got != 401 {
			t.Errorf("ROWS-FOR-ALL: %s of a node with certificates: %d", data, got)
		}
	}
	if got := get(profiled, "localhost", "/api/v1/rows?table=none"); got != 400 {
		t.Errorf("rows of no table: %d", got)
	}
	if got := get(profiled, "evil.test", "/debug/pprof/heap"); got != 421 {
		t.Errorf("a profile for another's site: %d", got)
	}
}
