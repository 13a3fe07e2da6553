package cli

import (
	"strings"
	"testing"
	"time"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// TestExpiryIsShown: cert show marks a certificate that ends soon, and status shows a node's report
// of its own.
func TestExpiryIsShown(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"cert", "create-ca", "--certs", dir},
		{"cert", "create-node", "n1", "--certs", dir, "--days", "10"},
	} {
		if code, _, stderr := runApp(t, bankCluster(), nil, args...); code != shell.ExitDone {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	code, stdout, stderr := runApp(t, bankCluster(), nil, "cert", "show", "--certs", dir)
	if code != shell.ExitDone || strings.Count(stdout, "EXPIRES IN 9 DAYS") != 1 {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	_, stdout, _ = runApp(t, bankCluster(), nil, "cert", "show", "--certs", dir, "-o", "json")
	if strings.Count(stdout, `"warning":"expires in 9 days"`) != 1 {
		t.Errorf("no warning in %s", stdout)
	}
	cluster := bankCluster()
	cluster.status.Certificates = []*pb.CertificateStatus{
		{File: "node.crt", Problem: "node.crt EXPIRED on 2026-01-02T03:04:05Z"},
		{File: "ca.crt", ExpiresUnixMs: time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC).UnixMilli()},
	}
	_, stdout, _ = runApp(t, cluster, nil, "status")
	for _, want := range []string{"node.crt EXPIRED on 2026-01-02T03:04:05Z",
		"ca.crt is valid until 2030-01-02"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}
