package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/percolatortest"
	"github.com/percolator-go/percolator/tuple"
)

// settle waits until nothing is left to run, compares with the batch computation, and returns the
// packages that an advisory reaches.
func settle(t *testing.T, n *percolatortest.Node, id string) []string {
	t.Helper()
	n.RunUntilIdle(t)
	s, err := n.DB().Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, _, err := verify(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r, err := range affects.Reached(t.Context(), s, id) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Node)
	}
	return names
}

func loadList(t *testing.T, n *percolatortest.Node, file string) {
	t.Helper()
	if _, err := load(t.Context(), n.DB(), file); err != nil {
		t.Fatal(err)
	}
}

func publish(t *testing.T, n *percolatortest.Node, id, name, version string) {
	t.Helper()
	n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
		advise(tx, id, name, version)
		return nil
	})
}

// TestEqualsBatch follows advisories while packages are added, changed and fixed, with and without
// a crash of the node halfway through each step.
func TestEqualsBatch(t *testing.T) {
	for name, crash := range map[string]bool{"undisturbed": false, "crashes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, register, percolatortest.DuplicateHints())
			disturb := func() {
				if crash {
					n.Crash(t)
				}
			}
			want := func(id string, names ...string) {
				t.Helper()
				disturb()
				if got := settle(t, n, id); !slices.Equal(got, names) {
					t.Fatalf("%s reaches %v, want %v", id, got, names)
				}
			}
			publish(t, n, "SSL", "libssl3", "3.0.17-1~deb12u1") // before there are packages
			publish(t, n, "PNG", "libpng16-16", "")
			loadList(t, n, "testdata/Packages")
			want("SSL", "curl", "libcurl4", "libssl3")
			want("PNG", "libpng16-16", "viewer", "viewer-data")
			publish(t, n, "CDEBCONF", "cdebconf", "")
			want("CDEBCONF", "cdebconf", "curl", "debconf-2.0", "libcurl4", "libssl3")
			// This list fixes libssl3 and separates the cycle of viewer and viewer-data.
			loadList(t, n, "testdata/Packages-security")
			want("SSL")
			want("PNG", "libpng16-16")
			publish(t, n, "SSL", "libssl3", "3.0.18-1")
			want("SSL", "curl", "libcurl4", "libssl3")
			n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
				withdraw(tx, "SSL", "libssl3")
				return nil
			})
			want("SSL")
		})
	}
}

// TestEdgeOfTwoPackages: a package provides the name of another that depends on it. The edge stays
// until both have dropped it, one after the other or in one step.
func TestEdgeOfTwoPackages(t *testing.T) {
	t.Parallel()
	n := percolatortest.Start(t, register, percolatortest.DuplicateHints())
	publish(t, n, "A", "a", "")
	provides, depends := "Provides: b\n", "Depends: a\n"
	for version, step := range []struct{ a, b string }{
		{provides, depends}, {"", depends}, {provides, depends}, {provides, ""}, {provides, depends},
		{"", ""}, {provides, depends}, {"", depends}, {"", ""}, {provides, ""},
	} {
		file := filepath.Join(t.TempDir(), "Packages")
		list := fmt.Sprintf("Package: a\nVersion: %d\n%s\nPackage: b\nVersion: %d\n%s\n", version, step.a,
			version, step.b)
		if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		loadList(t, n, file)
		want := []string{"a", "b"}
		if step.a+step.b == "" {
			want = want[:1]
		}
		if got := settle(t, n, "A"); !slices.Equal(got, want) {
			t.Fatalf("step %d: A reaches %v, want %v", version, got, want)
		}
	}
}

// TestVerifyFindsDifferences: verify fails on states that observers never leave: marks of a
// withdrawn advisory, a missing mark, an edge that no package has, and a verdict without an
// advisory.
func TestVerifyFindsDifferences(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(tx *percolator.Tx){
		"left behind": func(tx *percolator.Tx) { affects.Mark(tx, "WITHDRAWN", "zlib1g") },
		"missing":     func(tx *percolator.Tx) { affects.Unmark(tx, "ZLIB", "zlib1g") },
		"too many":    func(tx *percolator.Tx) { affects.AddEdge(tx, "viewer", "libc6") },
		"verdict": func(tx *percolator.Tx) {
			verdicts.Set(tx, tuple.Pack("zlib1g", "WITHDRAWN"), affected)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := percolatortest.Start(t, register)
			loadList(t, n, "testdata/Packages")
			publish(t, n, "ZLIB", "zlib1g", "")
			settle(t, n, "ZLIB")
			n.Transact(t, func(_ context.Context, tx *percolator.Tx) error {
				spoil(tx)
				return nil
			})
			n.RunUntilIdle(t)
			s, err := n.DB().Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			if _, _, err := verify(t.Context(), s); !errors.Is(err, errDiffers) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

// TestPage requests the pages after an advisory has spread.
func TestPage(t *testing.T) {
	t.Parallel()
	n := percolatortest.Start(t, register)
	loadList(t, n, "testdata/Packages")
	publish(t, n, "<b>", "zlib1g", "")
	settle(t, n, "<b>")
	h := handler(n.DB())
	for path, text := range map[string]string{
		"/":                   "zlib1g: affected; reaches 6 names, 0 waiting",
		"/advisory/%3Cb%3E":   "viewer through libpng16-16, depth 2",
		"/advisory/elsewhere": "It reaches 0 names",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) ||
			strings.Contains(w.Body.String(), "<b>") ||
			w.Header().Get("Content-Security-Policy") != contentPolicy {
			t.Errorf("%s: %d %v\n%s", path, w.Code, w.Header(), w.Body)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	inOrder := []string{
		"0~~", "0~~a", "0~", "0", "0a", "0+", "1.0~rc1-1", "1.0-1", "1.0-1+b1", "1.0-1.1", "1.0a-1",
		"1.0+dfsg-1", "1.2", "1.10", "1:0.1", "1:0.1-1-2", "1:0.2-1", "2:0",
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			got, want := compareVersions(a, b), 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got != want {
				t.Errorf("%q and %q: %d, want %d", a, b, got, want)
			}
		}
	}
}
