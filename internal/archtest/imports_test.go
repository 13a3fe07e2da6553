package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/percolator-go/percolator"

// A layer is a part of the repository and the packages of this module that it may import (design
// section 1). "x/..." is x and all below it. Every package belongs to the first layer that matches
// it.
type layer struct {
	of  string
	may []string
}

const (
	root = "."
	pb   = "api/percolator/v1"
	// gatewayPB is the API of the gateway.
	gatewayPB = "api/gateway/v1"
)

// layers are listed from the bottom up. A package in none of them fails the test.
var layers = []layer{
	{of: pb},
	{of: gatewayPB},
	{of: "internal/sicheck"},
	{of: "internal/broken/..."},
	{of: "internal/version"},
	{of: "internal/archtest"},
	{of: "internal/leaktest"},
	{of: "tuple"},
	{of: "internal/metrics"},
	{of: "internal/actorkit", may: []string{"internal/metrics", "internal/tracing"}},
	{of: "internal/notify/...", may: []string{pb, "internal/mvcc", "internal/wire"}},
	{of: "internal/mvcc"},
	{of: "internal/mvcc/mvcctest", may: []string{"internal/mvcc"}},
	{of: "internal/wire", may: []string{pb, "internal/mvcc", "internal/version"}},
	{of: "internal/tracing", may: []string{pb, "internal/mvcc", "internal/wire"}},
	{of: "internal/evaluate/evaluatetest", may: []string{
		pb, "internal/evaluate", "internal/mvcc/...", "internal/wire",
	}},
	{of: "internal/evaluate", may: []string{pb, "internal/mvcc", "internal/wire"}},
	{of: "internal/txn/txntest", may: []string{
		pb, "internal/evaluate/...", "internal/mvcc/...", "internal/txn", "internal/wire",
	}},
	{of: "internal/txn/request", may: []string{
		pb, "internal/coded", "internal/metrics", "internal/mvcc", "internal/tracing",
		"internal/txn/background", "internal/txn/tabletmap", "internal/wire",
	}},
	{of: "internal/txn/pending", may: []string{pb, "internal/mvcc", "internal/txn/request", "internal/wire"}},
	{of: "internal/txn/leases", may: []string{pb, "internal/mvcc", "internal/txn/request"}},
	{of: "internal/txn/...", may: []string{
		pb, "internal/coded", "internal/metrics", "internal/mvcc", "internal/tracing",
		"internal/txn/...", "internal/wire",
	}},
	{of: "internal/policy", may: []string{pb}},
	{of: "internal/certs"},
	{of: "internal/coded"},
	{of: "internal/connlimit"},
	{of: "internal/memory"},
	{of: "internal/processors"},
	{of: "internal/rpc", may: []string{
		"internal/coded",
		pb, "internal/certs", "internal/connlimit", "internal/metrics", "internal/mvcc", "internal/tracing",
		"internal/txn", "internal/wire",
	}},
	{of: "internal/handle/hook", may: []string{"internal/txn"}},
	{of: root, may: []string{
		"internal/coded",
		pb, "internal/handle/hook", "internal/mvcc", "internal/rpc", "internal/tracing", "internal/txn", "internal/wire",
	}},
	{of: "internal/handle", may: []string{root, "internal/handle/hook", "internal/txn"}},
	{of: "internal/exposition", may: []string{"internal/metrics", "internal/txn", "internal/txn/counters"}},
	{of: "promclient", may: []string{
		root, "internal/exposition", "internal/handle", "internal/txn",
	}},
	{of: "internal/inspect", may: []string{
		root, pb, "internal/coded", "internal/mvcc", "internal/pbjson", "internal/rpc", "internal/txn", "internal/wire",
	}},
	{of: "internal/health", may: []string{
		pb, "internal/inspect", "internal/mvcc", "internal/version", "internal/wire",
	}},
	{of: "store/...", may: []string{
		"internal/metrics", "internal/mvcc", "internal/version", "store/...",
	}},
	{of: "actors/observer", may: []string{
		root, pb, "internal/actorkit", "internal/handle", "internal/metrics", "internal/mvcc",
		"internal/notify", "internal/tracing", "internal/txn", "internal/wire",
	}},
	{of: "internal/worker", may: []string{
		root, pb, "actors/observer", "internal/actorkit", "internal/handle", "internal/mvcc", "internal/notify",
		"internal/rpc", "internal/tracing", "internal/txn", "internal/wire",
	}},
	{of: "internal/gateway", may: []string{
		root, gatewayPB, pb, "actors/observer", "internal/coded", "internal/handle", "internal/httpd",
		"internal/mvcc", "internal/rpc", "internal/tracing", "internal/txn/...", "internal/worker",
	}},
	{of: "actors/tablet/replicas", may: []string{
		pb, "actors/tablet/group", "actors/tablet/snapshot", "actors/tablet/writers",
		"internal/wire", "store",
	}},
	{of: "actors/tablet/snapshot", may: []string{
		pb, "actors/tablet/group", "actors/tablet/writers", "internal/wire", "store",
	}},
	{of: "actors/tablet/writers", may: []string{
		"internal/actorkit", "internal/metrics", "store", "store/raftlog",
	}},
	{of: "actors/tablet/group", may: []string{pb, "internal/wire"}},
	{of: "actors/tablet/memory", may: []string{
		pb, "internal/evaluate", "internal/mvcc", "internal/wire", "store",
	}},
	{of: "actors/tablet/history", may: []string{
		pb, "actors/tablet/memory", "internal/mvcc", "internal/wire", "store",
	}},
	{of: "actors/tablet/reads", may: []string{
		pb, "actors/tablet/group", "actors/tablet/memory", "internal/actorkit", "internal/evaluate",
		"internal/metrics", "internal/mvcc", "internal/tracing", "internal/wire", "store",
	}},
	{of: "actors/tablet", may: []string{
		pb, "actors/tablet/group", "actors/tablet/history", "actors/tablet/memory",
		"actors/tablet/reads", "actors/tablet/snapshot", "actors/tablet/writers",
		"internal/actorkit", "internal/evaluate", "internal/metrics",
		"internal/mvcc", "internal/notify", "internal/tracing", "internal/wire", "store",
	}},
	{of: "actors/...", may: []string{
		pb, "internal/actorkit", "internal/metrics", "internal/mvcc", "internal/notify",
		"internal/tracing", "internal/txn", "internal/wire", "store", "store/raftlog",
	}},
	{of: "cluster", may: []string{
		pb, "internal/mvcc", "internal/policy", "internal/txn", "internal/version", "internal/wire",
	}},
	{of: "cluster/route", may: []string{
		pb, "cluster", "internal/actorkit", "internal/mvcc", "internal/tracing", "internal/txn",
		"internal/version", "internal/wire",
	}},
	{of: "cluster/meta", may: []string{
		pb, "cluster", "cluster/route", "internal/mvcc", "internal/policy", "internal/txn",
		"internal/version", "internal/wire",
	}},
	{of: "cluster/liveness", may: []string{"internal/wire"}},
	{of: "cluster/join", may: []string{
		"internal/coded",
		pb, "cluster", "internal/mvcc", "internal/rpc", "internal/version", "internal/wire",
		"store",
	}},
	{of: "cluster/admin", may: []string{
		"internal/coded",
		pb, "actors/placement", "cluster", "cluster/meta", "cluster/peer", "cluster/route",
		"internal/health", "internal/mvcc", "internal/policy", "internal/txn", "internal/version",
		"internal/wire",
	}},
	{of: "cluster/...", may: []string{
		"internal/coded",
		pb, "cluster", "cluster/peer", "internal/actorkit", "internal/certs", "internal/connlimit",
		"internal/mvcc", "internal/txn", "internal/version", "internal/wire",
	}},
	{of: "node/config", may: []string{
		root, "internal/actorkit", "internal/mvcc", "internal/rpc",
	}},
	{of: "internal/nodeparts", may: []string{
		pb, "cluster", "cluster/join", "cluster/peer", "internal/txn", "internal/version",
		"node/config", "store",
	}},
	{of: "node/hosting", may: []string{
		root, pb, "actors/lockd", "actors/observer", "actors/scanner", "cluster", "cluster/admin",
		"cluster/join", "cluster/meta", "cluster/route", "internal/actorkit", "internal/handle",
		"internal/mvcc", "internal/notify", "internal/tracing", "internal/txn", "internal/wire",
		"node/config",
	}},
	{of: "internal/pbjson"},
	{of: "internal/recent", may: []string{
		pb, "internal/metrics", "internal/mvcc", "internal/pbjson", "internal/wire",
	}},
	{of: "internal/httpd", may: []string{
		pb, "internal/connlimit", "internal/mvcc", "internal/pbjson", "internal/wire",
	}},
	{of: "node/telemetry", may: []string{
		pb, "actors/expirer", "actors/lockd", "actors/observer", "actors/oracle", "actors/tablet",
		"actors/tablet/replicas", "actors/tablet/snapshot", "actors/tablet/writers", "actors/timers",
		"cluster", "cluster/admin", "cluster/liveness", "cluster/peer", "cluster/remoting", "cluster/route",
		"internal/exposition", "internal/gateway", "internal/httpd", "internal/metrics", "internal/mvcc",
		"internal/recent", "internal/rpc", "internal/txn", "internal/txn/counters", "internal/version",
		"internal/wire", "store",
	}},
	{of: "node/console", may: []string{
		root, pb, "cluster", "cluster/meta", "internal/certs", "internal/handle", "internal/httpd",
		"internal/inspect", "internal/mvcc", "internal/pbjson", "internal/recent", "internal/rpc",
		"internal/txn", "internal/wire", "node/config", "node/telemetry",
	}},
	{of: "internal/salvage", may: []string{
		pb, "actors/tablet", "actors/tablet/group", "actors/tablet/snapshot", "actors/tablet/writers",
		"cluster", "cluster/join", "cluster/meta", "internal/actorkit", "internal/mvcc", "internal/wire",
		"store",
	}},
	{of: "backup/s3"},
	{of: "backup", may: []string{
		"internal/coded",
		pb, "internal/mvcc", "internal/policy", "internal/txn", "internal/version", "internal/wire",
	}},
	{of: "internal/cli/shell", may: []string{
		"internal/coded",
		root, pb, "internal/certs", "internal/handle", "internal/inspect", "internal/mvcc", "internal/pbjson", "internal/rpc",
		"internal/txn", "internal/wire", "node/config",
	}},
	{of: "internal/cli/cells", may: []string{"internal/coded", root, pb, "internal/cli/shell", "internal/inspect", "internal/mvcc", "internal/pbjson"}},
	{of: "internal/cli/bulk", may: []string{
		"internal/coded",
		root, pb, "backup", "internal/cli/shell", "internal/inspect", "internal/mvcc", "internal/pbjson", "internal/txn",
	}},
	{of: "internal/cli/inspectcmd", may: []string{
		root, pb, "internal/coded", "internal/cli/shell", "internal/health", "internal/inspect", "internal/mvcc", "internal/pbjson",
		"internal/rpc", "internal/txn", "internal/wire",
	}},
	{of: "internal/cli/admin", may: []string{
		"internal/coded",
		root, pb, "internal/certs", "internal/cli/inspectcmd", "internal/cli/shell", "internal/inspect", "internal/mvcc", "internal/policy",
		"internal/salvage", "internal/txn", "internal/wire", "store",
	}},
	{of: "internal/cli/nodecmd", may: []string{
		"internal/coded",
		"internal/actorkit", "internal/certs", "internal/cli/shell", "internal/inspect", "internal/policy", "internal/rpc",
		"node/config",
	}},
	{of: "internal/cli", may: []string{
		root, pb, "internal/cli/...", "internal/coded", "internal/inspect", "internal/policy", "internal/rpc", "internal/txn", "internal/version", "node/config",
	}},
	{of: "node/leaderjobs", may: []string{
		pb, "actors/archiver", "actors/backfill", "actors/collector", "actors/expirer", "actors/merger",
		"actors/oracle", "actors/placement", "actors/splitter", "actors/timers", "backup", "cluster",
		"cluster/meta", "cluster/route", "internal/mvcc", "internal/policy", "internal/txn",
		"internal/version", "node/config",
	}},
	{of: "node", may: []string{"..."}},
	{of: "worker", may: []string{
		root, "actors/observer", "internal/rpc", "internal/tracing", "internal/txn", "internal/worker",
	}},
	{of: "app", may: []string{root, "internal/cli", "internal/cli/shell", "internal/memory", "internal/processors", "internal/version", "node"}},
	{of: "recipes/...", may: []string{root, "recipes/...", "tuple"}},
	{of: "percolatortest", may: []string{
		root, pb, "internal/handle", "internal/mvcc", "internal/nodeparts", "internal/txn",
		"internal/wire", "node", "store",
	}},
	{of: "cmd/...", may: []string{"app", "backup/s3", "internal/demo"}},
	{of: "bench", may: []string{"..."}},
	{of: "bench/cluster", may: []string{"..."}},
	{of: "bench/backup", may: []string{"..."}},
	{of: "bench/pauses", may: []string{"..."}},
	{of: "bench/turns", may: []string{"..."}},
	{of: "test/...", may: []string{"..."}},
	// tools and harnesses: imported by commands and tests only
	{of: "internal/...", may: []string{"..."}},
	{of: "examples/...", may: []string{root, "app", "node", "examples/...", "recipes/...", "tuple", "worker"}},
	{of: "docs/guide/...", may: []string{root, "app", "recipes/...", "tuple"}},
}

// never lists, for some packages, the packages that they must not link, even indirectly.
var never = []struct {
	pkg  string
	deps []string
}{
	{"internal/mvcc", []string{
		module + "/api/...", module + "/internal/actorkit", "google.golang.org/...",
		"github.com/...",
	}},
	{root, []string{
		module + "/actors/...", module + "/cluster/...", module + "/store/...", module + "/node",
		"github.com/dgraph-io/...", "github.com/asynkron/...", "github.com/hashicorp/memberlist",
		"go.etcd.io/...", "github.com/prometheus/...",
	}},
	// Packages that count do not link an exporter.
	{"internal/metrics", []string{module + "/...", "github.com/...", "google.golang.org/..."}},
	// The Raft of one replica is a pure type.
	{"actors/tablet/group", []string{
		module + "/store/...", module + "/internal/actorkit", "github.com/asynkron/...",
		"github.com/dgraph-io/...",
	}},
	// The web index's verifier is independent of what it verifies.
	{"examples/webindex/verify", []string{
		module + "/actors/...", module + "/cluster/...", module + "/store/...", module + "/node",
		module + "/examples/webindex/index", "github.com/dgraph-io/...", "github.com/asynkron/...",
	}},
}

// goPackage holds the fields of `go list -json` used here.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Error      *struct{ Err string }
}

// TestImportDirection checks every package's imports against the table.
func TestImportDirection(t *testing.T) {
	for _, p := range list(t) {
		name := short(p.ImportPath)
		l := layerOf(name)
		if l == nil {
			t.Errorf("%s is in no layer: add it to the table in imports_test.go", name)
			continue
		}
		for _, imported := range p.Imports {
			if !strings.HasPrefix(imported, module) {
				continue
			}
			if target := short(imported); !slices.ContainsFunc(l.may, func(p string) bool {
				return matches(p, target)
			}) {
				t.Errorf("%s imports %s: layer %s may import only %v", name, target, l.of, l.may)
			}
		}
	}
}

// TestNeverLinked checks packages that must not be linked even indirectly.
func TestNeverLinked(t *testing.T) {
	packages := map[string]goPackage{}
	for _, p := range list(t) {
		packages[short(p.ImportPath)] = p
	}
	for _, rule := range never {
		p, ok := packages[rule.pkg]
		if !ok {
			t.Errorf("package %s is gone", rule.pkg)
			continue
		}
		for _, dep := range p.Deps {
			for _, pattern := range rule.deps {
				if pattern == "github.com/..." && strings.HasPrefix(dep, module) {
					continue // the module's own packages
				}
				if matches(pattern, dep) {
					t.Errorf("%s links %s", rule.pkg, dep)
				}
			}
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, name string
		want          bool
	}{
		{"...", "a/b", true}, {".", ".", true}, {".", "a", false},
		{"a/...", "a", true}, {"a/...", "a/b", true}, {"a/...", "ab", false}, {"a", "a/b", false},
	} {
		if got := matches(tc.pattern, tc.name); got != tc.want {
			t.Errorf("matches(%q, %q) = %v", tc.pattern, tc.name, got)
		}
	}
}

func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

func layerOf(name string) *layer {
	for i := range layers {
		if matches(layers[i].of, name) {
			return &layers[i]
		}
	}
	return nil
}

// short converts an import path of this module into a path relative to its root; "." is the root
// package.
func short(path string) string {
	if path == module {
		return root
	}
	return strings.TrimPrefix(path, module+"/")
}

// list returns all packages of the module with their dependencies, by the Go tool, without imports
// of tests.
func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps,Error", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var packages []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	return packages
}
