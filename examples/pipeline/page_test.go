package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/examples/pipeline/vectors"
)

// TestPage: the page has the nearest piece first, as text.
func TestPage(t *testing.T) {
	t.Parallel()
	o := startOutside(t, embedder.Config{})
	for i, text := range []string{"Sums two <b>numbers</b>", "Reads a file"} {
		e := vectors.Entry{ID: text[:4], Version: uint64(i + 1), Text: text, Vector: embedder.Embed(text)}
		if err := o.indexing.Apply([]vectors.Change{{Entry: e, ReadAt: 1 << 40}}); err != nil {
			t.Fatal(err)
		}
	}
	page := httptest.NewServer(o.page())
	defer page.Close()
	get := func(path string) string {
		t.Helper()
		resp, err := http.Get(page.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status, err)
		}
		return string(body)
	}
	found := get("/?q=sums+numbers")
	first, second := strings.Index(found, "Sums"), strings.Index(found, "Read")
	if first < 0 || second >= 0 && second < first || !strings.Contains(found, "&lt;b&gt;") {
		t.Errorf("the page is %s", found)
	}
	if empty := get("/"); strings.Contains(empty, "<article>") {
		t.Errorf("the page without words is %s", empty)
	}
}
