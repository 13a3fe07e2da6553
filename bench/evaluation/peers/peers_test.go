package peers

import (
	"context"
	"os"
	"testing"

	"github.com/percolator-go/percolator/bench/evaluation/harness"
	scratch "github.com/percolator-go/percolator/bench/evaluation/postgres"
)

// TestSmoke runs what needs neither PostgreSQL nor a built binary, briefly: each measurement checks
// its own result.
func TestSmoke(t *testing.T) {
	t.Setenv(scratch.Without, "1")
	for _, m := range Measurements() {
		if m.Name == "etcd3" {
			continue // three processes of the built binary
		}
		t.Run(m.Name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "p") //nolint:usetesting // a short path for a socket
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := m.Run(context.WithoutCancel(t.Context()), &harness.Run{Smoke: true, Rounds: 1, Dir: dir, Log: t.Output()}); err != nil {
				t.Fatal(err)
			}
		})
	}
}
