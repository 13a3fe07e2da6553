package node_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/node"
)

// TestReadyNeedsMeta: a node disconnected from meta's leader reports it at /readyz, and is ready
// again once it is reconnected.
func TestReadyNeedsMeta(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := newRig(t, 2, func(_ int, c *node.Config) {
		c.HTTP, c.Placement.Off = "127.0.0.1:0", true // meta stays on the first
	})
	ready := func() (code int, body string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.nodes[1].HTTPAddr()+
			"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
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
	if code, body := ready(); code != http.StatusOK {
		t.Fatalf("readyz answers %d %s, want 200", code, body)
	}
	r.network.Isolate(r.id(1))
	awaitTrue(ctx, t, "the node says that meta is away", func() bool {
		code, body := ready()
		return code == http.StatusServiceUnavailable &&
			strings.Contains(body, "meta does not answer")
	})
	r.network.Heal()
	awaitTrue(ctx, t, "the node is ready again", func() bool {
		code, _ := ready()
		return code == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
}
