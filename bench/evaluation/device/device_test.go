package device

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percolator-go/percolator/app"
	"github.com/percolator-go/percolator/test/disk"
)

// TestMain executes a node's command line if the test binary was started under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "percolator" {
		app.Main(nil)
		return
	}
	os.Exit(m.Run())
}

// TestCommit: the harness commits the requested number of transactions, and counts at least the
// bytes of their incompressible values, in the right unit.
func TestCommit(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "percolator")
	if err := os.Symlink(self, binary); err != nil {
		t.Fatal(err)
	}
	o := options{count: 400, callers: 8}
	for _, w := range []workload{{name: "one-phase", size: 10_000}, {name: "two-phase", size: 10_000, twoPhase: true}} {
		d := disk.New(t, 2<<30)
		f, err := commit(ctx, o, w, d, binary, filepath.Join(d.Dir(), "data"))
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		least := int64(o.count * w.size)
		if f.loaded < least || f.written < f.loaded || f.written > 100*least ||
			f.transactions != o.count {
			t.Errorf("%s: %d bytes of values: %+v", w.name, least, f)
		}
		if f.cpu <= 0 || f.resident <= 0 || f.took <= 0 {
			t.Errorf("%s: no processor time or memory was measured: %+v", w.name, f)
		}
		t.Logf("%s: %.0f bytes each", w.name, f.perTransaction())
	}
}

func TestTransactions(t *testing.T) {
	const summary = `pages: the Go documentation, in /pages
node: /data
loaded 8381 pages (3 unchanged, 0 removed) in 2.1s; indexed after 43.2s
written: 353881 cells of 70123456 bytes
index: 8378 pages, 4200 clusters, 46406 links
export: 8378 documents written and 0 removed in 700 batches; 1 repeated and 2 late ones dropped
observer        runs   commits conflicts  failures
process         9000      8381        20         0
rank           44000     43000         7         1
`
	if n, err := transactions([]byte(summary)); n != 8381+8381+43000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, size := cells([]byte(summary)); n != 353881 || size != 70123456 {
		t.Errorf("%d cells of %d bytes", n, size)
	}
	head, _, _ := strings.Cut(summary, "observer")
	for _, text := range []string{"", head, strings.ReplaceAll(summary, "8381 ", "8,381 ")} {
		if n, err := transactions([]byte(text)); err == nil {
			t.Errorf("%d of a summary without all its numbers", n)
		}
	}
}
