package batch

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/percolator-go/percolator/"

// TestIndependent: neither this package nor the verify command depends on an observer, the store or
// an actor, so the verifier cannot share their faults.
func TestIndependent(t *testing.T) {
	for _, pkg := range []string{"examples/webindex/batch", "examples/webindex/verify",
		"examples/webindex/page", "examples/webindex/corpus"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps",
			module+pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		deps := strings.Fields(string(out))
		if len(deps) < 10 {
			t.Fatalf("%s: only %d dependencies: the list can't be right", pkg, len(deps))
		}
		for _, dep := range deps {
			for _, banned := range []string{
				module + "store", module + "actors", module + "node", module + "cluster", module +
					"internal/actorkit",
				module + "examples/webindex/index", "github.com/dgraph-io/badger",
				"github.com/asynkron/protoactor-go",
			} {
				if dep == banned || strings.HasPrefix(dep, banned+"/") {
					t.Errorf("%s depends on %s", pkg, dep)
				}
			}
		}
	}
}
