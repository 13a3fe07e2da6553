package node_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/certs/certstest"
	"github.com/percolator-go/percolator/internal/handle"
	"github.com/percolator-go/percolator/internal/nodeparts"
	"github.com/percolator-go/percolator/node"
)

// TestCertificateRunsOut: a node reports in its status, its metrics and to probes that its
// certificate is about to end, and is not ready once it has.
func TestCertificateRunsOut(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		lifetime, ahead time.Duration
		says            string // empty: no problem
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
		n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Clock: func() time.Time {
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
			t.Errorf("the metric reports %v, %v is right", left, tc.lifetime)
		}
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestCertificateFaultsAreCritical: doctor reports within seconds that a node's certificate has
// expired, does not cover the node's client address, or was replaced by an unusable one.
func TestCertificateFaultsAreCritical(t *testing.T) {
	other := certstest.Folder(t, "127.0.0.1")
	for name, c := range map[string]struct {
		host  string
		ahead time.Duration
		harm  func(dir string) error
		says  string // empty: no problem
	}{
		"sound":   {host: "127.0.0.1"},
		"expired": {host: "127.0.0.1", ahead: 100 * 365 * 24 * time.Hour, says: "EXPIRED"},
		"host":    {host: "elsewhere", says: "the announced address of this node"},
		"replaced": {host: "127.0.0.1", harm: func(dir string) error {
			text, err := os.ReadFile(filepath.Join(other, certs.NodeCert))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, certs.NodeCert), text, 0o600)
		}, says: "a restart will fail"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for the next check of the files
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dir := certstest.Folder(t, c.host)
			cfg := node.DefaultConfig()
			cfg.Listen, cfg.HTTP, cfg.Certs, cfg.Store.InMemory = "127.0.0.1:0", "", dir, true
			n, err := nodeparts.Open[node.Node](ctx, cfg, nodeparts.Parts{Clock: func() time.Time {
				return time.Now().Add(c.ahead)
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := n.Close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			if c.harm != nil {
				if err := c.harm(dir); err != nil {
					t.Fatal(err)
				}
			}
			found := func() string {
				r, err := handle.Client(n.DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range r.Findings {
					if f.Kind == "certificate-ending" && f.Severity == pb.Severity_SEVERITY_CRITICAL {
						return f.Text
					}
				}
				return ""
			}
			for began := time.Now(); c.says != "" && !strings.Contains(found(), c.says); {
				if time.Since(began) > 30*time.Second {
					t.Fatalf("not critical within 30 s: %v", n.Status().Certificates)
				}
			}
			if text := found(); c.says == "" && text != "" {
				t.Errorf("nothing is wrong: %s", text)
			}
		})
	}
}

// TestRolelessCertificates: the status of a cluster lists certificates without a role, by the
// clients that use one and by the nodes that have one next to their own.
func TestRolelessCertificates(t *testing.T) {
	ctx, dir := t.Context(), certstest.Folder(t, "127.0.0.1")
	old := certstest.OldClient(t, dir)
	cfg := node.DefaultConfig()
	cfg.Listen, cfg.HTTP, cfg.Certs, cfg.Store.InMemory = "127.0.0.1:0", "", dir, true
	n, err := node.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	found := func() (texts []string) {
		r, err := handle.Client(n.DB()).Admin().ClusterStatus(ctx, &pb.ClusterStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Kind == "roleless-client" {
				texts = append(texts, f.Text+" "+f.Remedy)
			}
		}
		return texts
	}
	if got := found(); len(got) != 0 {
		t.Errorf("of a client with a role: %q", got)
	}
	db, err := percolator.Dial(ctx, []string{n.Addr()}, percolator.ClientConfig{
		CAFile: filepath.Join(old, certs.CACert), CertFile: filepath.Join(old, certs.ClientCert),
		KeyFile: filepath.Join(old, certs.ClientKey),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(old, certs.ClientCert))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, certs.ClientCert), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := found()
	if len(got) != 1 || !strings.Contains(got[0], "called node ") || !strings.Contains(got[0], "client.crt on node ") ||
		!strings.Contains(got[0], "create-client ann --role") {
		t.Errorf("ROLELESS: %q", got)
	}
}

// TestCertificateWithoutTheAddress: a node whose certificate does not cover its client address logs
// that at its start, with the command that creates one that does.
func TestCertificateWithoutTheAddress(t *testing.T) {
	for host, want := range map[string][]string{
		"127.0.0.1": nil,
		"localhost": {
			"node.crt is for localhost, not for 127.0.0.1",
			"cert create-node x --host localhost --host 127.0.0.1 --ca-dir DIR --certs ",
		},
	} {
		dir, log := certstest.Folder(t, host), &sharedLog{}
		open(t, "", func(c *node.Config) {
			c.Insecure, c.Certs, c.Listen = false, dir, "127.0.0.1:0"
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		text := log.String()
		if warned := strings.Contains(text, "lacks this node's address"); warned != (want != nil) {
			t.Errorf("for %s: warned: %v: %s", host, warned, text)
		}
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("for %s: no %q in %s", host, part, text)
			}
		}
	}
}
