package node_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/node"
)

// TestCertificateRunsOut: a node tells in its status, its metrics and to probes that its
// certificate is about to end, and is not ready once it has.
func TestCertificateRunsOut(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		lifetime, ahead time.Duration
		says            string // empty: nothing
		code            int
	}{
		{90 * day, 0, "", http.StatusOK},
		{20 * day, 0, "node.crt expires on", http.StatusOK},
		{20 * day, 21 * day, "node.crt EXPIRED on", http.StatusServiceUnavailable},
	} {
		dir := t.TempDir()
		for _, create := range []func() (certs.Created, error){
			func() (certs.Created, error) { return certs.CreateCA(certs.Request{Dir: dir}) },
			func() (certs.Created, error) {
				return certs.CreateNode(certs.Request{
					Dir: dir, Name: "n1", Hosts: []string{"127.0.0.1"}, Lifetime: tc.lifetime,
				})
			},
		} {
			if _, err := create(); err != nil {
				t.Fatal(err)
			}
		}
		cfg := node.DefaultConfig()
		cfg.Listen, cfg.HTTP, cfg.Certs, cfg.Store.InMemory = "127.0.0.1:0", "127.0.0.1:0", dir,
			true
		n, err := node.OpenWith(ctx, cfg, node.Parts{Clock: func() time.Time {
			return time.Now().Add(tc.ahead)
		}})
		if err != nil {
			t.Fatal(err)
		}
		code, body := fetch(ctx, t, n, "/readyz")
		if code != tc.code || !strings.Contains(body, tc.says) || tc.says == "" &&
			body != "ready\n" {
			t.Errorf("%v to live, %v ahead: %d %s", tc.lifetime, tc.ahead, code, body)
		}
		status := n.Status().Certificates
		if len(status) != 2 || !strings.Contains(status[0].Problem, tc.says) ||
			(status[0].Problem == "") != (tc.says == "") || status[1].Problem != "" {
			t.Errorf("%v to live, %v ahead: %v", tc.lifetime, tc.ahead, status)
		}
		at := series(ctx, t, n)[`percolator_certs_expiry_timestamp_seconds{file="node.crt"}`]
		if left := time.Until(time.Unix(int64(at), 0)); left > tc.lifetime ||
			left < tc.lifetime-time.Hour {
			t.Errorf("the metric says %v, %v is right", left, tc.lifetime)
		}
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
