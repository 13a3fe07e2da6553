package attack_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/test/cluster"
	"github.com/percolator-go/percolator/test/cluster/clustertest"
)

const (
	// halfOpen is the number of half-open connections to each port. One that the node closes is
	// opened again.
	halfOpen = 10_000
	// newcomers is the number of clients that connect during the attack, and of requests by each probe.
	newcomers = 20
	// promptly bounds the time of a newcomer or a probe.
	promptly = time.Second
)

// TestHalfOpenConnections: a stranger keeps 10,000 connections to a port of a node, each with half a
// handshake. Clients with certificates that connect from the stranger's own address are served
// within a second, and so are probes; a node that starts during the attack joins.
func TestHalfOpenConnections(t *testing.T) {
	if os.Getenv("ATTACK") == "" {
		t.Skip("three processes, and 10,000 connections to each port; make attack runs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := clustertest.Start(ctx, t, cluster.Config{Nodes: 3, TLS: true})
	db, err := c.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.CreateTable(ctx, percolator.TableSpec{Name: cell.Table}); err != nil {
		t.Fatal(err)
	}
	clustertest.Replicated(ctx, t, db, 2)
	first, hello := c.Node(0), []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3} // half a ClientHello
	for _, port := range []struct {
		name, addr string
		sends      []byte
	}{
		{"clients", first.Listen, hello},
		{"nodes", beside(t, first.Listen, 1), hello},
		{"gossip", beside(t, first.Listen, 2), []byte{10}},
		{"http", first.HTTP, []byte("GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n")},
	} {
		t.Run(port.name, func(t *testing.T) {
			end := flood(ctx, t, port.addr, port.sends)
			defer end()
			var waits []time.Duration
			for range newcomers {
				waits = append(waits, newcomer(ctx, t, first.Listen, c.ClientConfig()))
			}
			waits = append(waits, probed(ctx, t, first.HTTP)...)
			t.Logf("a newcomer or probe waited for %v at most, %v in the mean", slices.Max(waits),
				mean(waits).Round(time.Millisecond))
			if slices.Max(waits) > promptly {
				t.Errorf("ATTACK: they waited for %v", waits)
			}
			if port.name != "nodes" && port.name != "gossip" {
				return
			}
			began := time.Now()
			if err := c.Node(2).Kill(); err != nil {
				t.Fatal(err)
			}
			if err := c.Node(2).Start(); err != nil {
				t.Fatal(err)
			}
			if err := c.Ready(ctx); err != nil {
				t.Fatalf("ATTACK: a node that starts does not get in: %v", err)
			}
			t.Logf("a node that was killed served again after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// flood keeps halfOpen connections to the address, each of which sends some bytes, until end is called.
func flood(ctx context.Context, t *testing.T, addr string, sends []byte) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var workers, opened sync.WaitGroup
	opened.Add(halfOpen)
	for range halfOpen {
		workers.Go(func() {
			first := sync.OnceFunc(opened.Done)
			defer first()
			for ctx.Err() == nil {
				d := net.Dialer{Timeout: 10 * time.Second}
				conn, err := d.DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				_, _ = conn.Write(sends)
				first()
				_, _ = io.Copy(io.Discard, conn) // until the node closes it
				stop()
				_ = conn.Close()
				wait := time.NewTimer(time.Second) // some thousand connections a second are opened
				select {
				case <-wait.C:
				case <-ctx.Done():
				}
			}
		})
	}
	opened.Wait()
	return func() { cancel(); workers.Wait() }
}

// newcomer connects, commits a transaction and returns how long that took.
func newcomer(ctx context.Context, t *testing.T, addr string, cfg percolator.ClientConfig) time.Duration {
	t.Helper()
	began := time.Now()
	db, err := percolator.Dial(ctx, []string{addr}, cfg)
	if err != nil {
		t.Fatalf("ATTACK: %v", err)
	}
	defer func() { _ = db.Close() }()
	connected := time.Since(began)
	if err := db.Transact(ctx, func(_ context.Context, tx *percolator.Tx) error {
		tx.Set("a", cell, []byte("x"))
		return nil
	}); err != nil {
		t.Errorf("ATTACK: %v", err)
	}
	return connected
}

// probed requests the health page, each time over a new connection, and returns the duration of
// each request.
func probed(ctx context.Context, t *testing.T, addr string) (waits []time.Duration) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for range newcomers {
		for _, path := range []string{"/livez", "/readyz"} {
			began := time.Now()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("ATTACK: a probe: %v", err)
				continue
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("ATTACK: %s reports %s", path, resp.Status)
			}
			waits = append(waits, time.Since(began))
		}
	}
	return waits
}

func mean(all []time.Duration) (sum time.Duration) {
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(len(all), 1))
}
