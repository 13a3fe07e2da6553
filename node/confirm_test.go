package node_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/cluster/peer/memlink"
	"github.com/percolator-go/percolator/internal/ports"
	"github.com/percolator-go/percolator/node"
)

// TestStartIsConfirmed: three nodes with replicas of all tablets are stopped. One that returns
// alone reports at /readyz that its start is unconfirmed; with the second one both become ready.
func TestStartIsConfirmed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	j := &joiner{t, memlink.NewNetwork()}
	dirs := t.TempDir()
	var listen, pages [3]string
	for i := range listen {
		base, err := ports.Run(4) // for clients, nodes, gossip and HTTP
		if err != nil {
			t.Fatal(err)
		}
		listen[i], pages[i] = fmt.Sprintf("127.0.0.1:%d", base), fmt.Sprintf("127.0.0.1:%d", base+3)
	}
	open := func(i int) (*node.Node, error) {
		return j.open(ctx, filepath.Join(dirs, string(rune('a'+i))), func(c *node.Config) {
			c.Listen, c.HTTP, c.Placement.Busy = listen[i], pages[i], 50*time.Millisecond
			if i > 0 {
				c.Join = listen[:1]
			}
		})
	}
	var nodes [3]*node.Node
	for i := range nodes {
		var err error
		if nodes[i], err = open(i); err != nil {
			t.Fatal(err)
		}
	}
	awaitTrue(ctx, t, "three voters of all tablets on all nodes", func() bool {
		return threeVoters(nodes[:]) && len(nodes[2].Status().Tablets) == 2
	})
	for _, n := range nodes {
		j.close(n)
	}
	opened := make(chan error, 2)
	start := func(i int) {
		go func() {
			n, err := open(i)
			nodes[i] = n
			opened <- err
		}()
	}
	start(1)
	awaitTrue(ctx, t, "the first one says that it waits", func() bool {
		return strings.Contains(readyz(ctx, t, pages[1]),
			"1 of the 3 voters, including this node, have confirmed its start")
	})
	http.DefaultClient.CloseIdleConnections()
	start(0)
	for range 2 {
		if err := <-opened; err != nil {
			t.Fatal(err)
		}
	}
	j.close(nodes[0])
	j.close(nodes[1])
}

// threeVoters reports whether every tablet of the nodes has three voters and no change of them is
// in progress.
func threeVoters(nodes []*node.Node) bool {
	for _, n := range nodes {
		for _, s := range n.Status().Tablets {
			for _, r := range s.Tablet.Replicas {
				if r.Learner || r.Incoming || r.Outgoing {
					return false
				}
			}
			if len(s.Tablet.Replicas) != 3 {
				return false
			}
		}
	}
	return true
}

// readyz returns the page's text; empty: no answer.
func readyz(ctx context.Context, t *testing.T, page string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
