package archtest

import "testing"

// ofOthers lists packages that no user program links: those of the command line, the AWS driver of
// backups, the examples and the tests of this module.
var ofOthers = []string{
	"github.com/aws/...", "github.com/blevesearch/...",
	"github.com/johannesboyne/...", "gocloud.dev/blob/s3blob", "gocloud.dev/blob/memblob",
	module + "/backup/s3", module + "/bench/...", module + "/examples/...",
	module + "/internal/demo", module + "/test/...",
}

// ofTests lists packages that the shipped binary does not link: those of tests and benches.
var ofTests = []string{
	"github.com/blevesearch/...", "github.com/johannesboyne/...",
	"gocloud.dev/blob/memblob", "testing", module + "/bench/...", module + "/test/...",
}

// ofTheShell lists packages that only a command line links.
var ofTheShell = []string{
	"github.com/knadh/koanf/...", "github.com/spf13/...", "github.com/vbauerster/mpb/...",
	module + "/app", module + "/internal/cli/...",
}

// linked bounds the packages that a program links with a package of the API, and those of the
// shipped binary: most is their number, itself and the standard library included, slightly above
// that of linux/amd64. A change that needs more raises it and says why.
var linked = []struct {
	pkg    string
	most   int
	banned [][]string
}{
	{root, 350, [][]string{ofOthers, ofTheShell, {"testing", module + "/node"}}},
	{"node", 605, [][]string{ofOthers, ofTheShell, {"testing"}}},
	{"percolatortest", 610, [][]string{ofOthers, ofTheShell}},
	{"app", 625, [][]string{ofOthers, {"testing"}}},
	{"cmd/node", 730, [][]string{ofTests}},
}

// TestLinked checks the linked packages against the table.
func TestLinked(t *testing.T) {
	packages := map[string]goPackage{}
	for _, p := range list(t) {
		packages[short(p.ImportPath)] = p
	}
	for _, rule := range linked {
		p, ok := packages[rule.pkg]
		if !ok {
			t.Errorf("package %s is gone", rule.pkg)
			continue
		}
		if n := len(p.Deps) + 1; n > rule.most {
			t.Errorf("%s links %d packages, at most %d are allowed: `go list -deps` names them",
				rule.pkg, n, rule.most)
		}
		for _, patterns := range rule.banned {
			for _, dep := range p.Deps {
				for _, pattern := range patterns {
					if matches(pattern, dep) {
						t.Errorf("%s links %s", rule.pkg, dep)
					}
				}
			}
		}
	}
}
