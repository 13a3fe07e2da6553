package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

func compute(t *testing.T, html map[string]string) *Index {
	t.Helper()
	x, err := Compute(func(yield func(Raw, error) bool) {
		for url, text := range html {
			if !yield(Raw{url, []byte(text)}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func stub(to string) string { return `<meta http-equiv="refresh" content="0; url=` + to + `">` }

// The rules in package schema, each by an example.
func TestCompute(t *testing.T) {
	html := map[string]string{
		// Two copies; b has two pages linking to it, a has one, and a stub leads to a.
		"http://x/a.html": "copy", "http://y/b.html": "copy",
		"http://x/1.html": `<a href="a.html">one</a><a href="http://y/b.html">two</a>`,
		"http://x/2.html": `<a href="http://y/b.html">three</a><a href="http://y/b.html">four</a>`,
		"http://x/s.html": stub("a.html"),
		"http://x/3.html": `<a href="s.html">by stub</a>`,
		// Equal ranks: the least URL.
		"http://x/e.html": "equal", "http://w/e.html": "equal",
		// A missing target, a loop with an entry, a page that leads to itself.
		"http://x/n.html":  stub("gone.html"),
		"http://x/4.html":  `<a href="n.html">gone</a><a href="never.html"></a>`,
		"http://x/l2.html": stub("l3.html"), "http://x/l3.html": stub("l1.html"),
		"http://x/l1.html": stub("l2.html"),
		"http://x/in.html": stub("l3.html"), "http://x/self.html": stub("self.html"),
	}
	for i := range page.MaxRedirects + 1 { // one hop too many for the first of them
		html[fmt.Sprintf("http://c/%02d.html", i)] = stub(fmt.Sprintf("%02d.html", i+1))
	}
	html[fmt.Sprintf("http://c/%02d.html", page.MaxRedirects+1)] = "end"

	x := compute(t, html)
	end := fmt.Sprintf("http://c/%02d.html", page.MaxRedirects+1)
	for url, want := range map[string]string{
		"http://x/a.html": "http://y/b.html", "http://x/s.html": "http://y/b.html",
		"http://y/b.html": "",
		"http://x/e.html": "http://w/e.html", "http://w/e.html": "",
		"http://x/n.html": "http://x/gone.html", "http://x/in.html": "http://x/l1.html",
		"http://x/l3.html": "http://x/l1.html",
		"http://x/l1.html": "", "http://x/self.html": "",
		"http://c/00.html": "", "http://c/01.html": end, end: "",
	} {
		if x.Ways[url] != want {
			t.Errorf("canonical of %s: %q, want %q", url, x.Ways[url], want)
		}
	}
	wantAnchors := map[string]string{
		"http://y/b.html http://x/1.html http://x/a.html":         "one",
		"http://y/b.html http://x/1.html http://y/b.html":         "two",
		"http://y/b.html http://x/2.html http://y/b.html":         "three\nfour",
		"http://y/b.html http://x/3.html http://x/s.html":         "by stub",
		"http://x/gone.html http://x/4.html http://x/n.html":      "gone",
		"http://x/never.html http://x/4.html http://x/never.html": "",
	}
	if !maps.Equal(x.Anchors, wantAnchors) {
		t.Errorf("anchors %q", x.Anchors)
	}
	// No page links to 1, 2, 3 and 4: their rank is 1/2. 1 and 4 have two targets, 2 and 3 have
	// one; stubs pass on no rank.
	wantRanks := map[string]string{
		"http://x/a.html": "625", "http://y/b.html": "875", "http://x/s.html": "750",
		"http://x/n.html": "625", "http://x/never.html": "625",
	}
	if !maps.Equal(x.Ranks, wantRanks) {
		t.Errorf("ranks %q", x.Ranks)
	}
	doc, err := schema.DecodeDocument([]byte(x.Docs["http://y/b.html"]))
	if err != nil || doc.Rank != 875 || doc.Linking != 3 || doc.Hash != page.Hash([]byte("copy")) {
		t.Errorf("document %+v, %v", doc, err)
	}
	if len(x.Docs) != len(x.Heads) {
		t.Errorf("%d documents of %d clusters", len(x.Docs), len(x.Heads))
	}
	if n := len(html) - 2 - 1 - 3 - page.MaxRedirects; x.Clusters() != n {
		t.Errorf("%d clusters of %d pages, want %d", x.Clusters(), len(html), n)
	}
	if n := len(x.Members); n != 3+2+4+1+page.MaxRedirects {
		t.Errorf("%d members: %q", n, x.Members)
	}
}

// source serves an index from cells, as a database would.
func source(cells map[percolator.CellKey]string) Source {
	return func(_ context.Context, cols ...percolator.Column) iter.Seq2[percolator.Cell, error] {
		return func(yield func(percolator.Cell, error) bool) {
			for key, value := range cells {
				if slices.Contains(cols, key.Column) &&
					!yield(percolator.Cell{CellKey: key, Value: []byte(value)}, nil) {
					return
				}
			}
		}
	}
}

// Each kind of wrong, missing or superfluous cell is a difference.
func TestDiff(t *testing.T) {
	raw := `<title>T</title>words<a href="b.html">b</a>`
	hash := page.Hash([]byte(raw))
	good := map[percolator.CellKey]string{
		{Row: "http://x/a.html", Column: schema.Pages(schema.Content)}:                       "page " + hash,
		{Row: "http://x/a.html", Column: schema.Pages(schema.Title)}:                         "T",
		{Row: "http://x/a.html", Column: schema.Pages(schema.Text)}:                          "words b",
		{Row: hash + " http://x/a.html", Column: schema.MemberKind()}:                        "page",
		{Row: hash, Column: schema.Clusters(schema.Canonical)}:                               "http://x/a.html",
		{Row: "http://x/b.html http://x/a.html http://x/b.html", Column: schema.Anchor()}:    "b",
		{Row: "http://x/b.html", Column: schema.Pages(schema.Rank)}:                          "750",
		{Row: "http://x/a.html", Column: schema.Pages(schema.Doc)}:                           hash + " 500 0 " + fingerprint(""),
		{Row: "http://x/a.html", Column: schema.Pages(schema.Raw)}:                           raw,
		{Row: "http://x/b.html http://x/a.html", Column: schema.LinkFrom()}:                  "",
		{Row: "http://x/a.html", Column: percolator.Column{Table: "pages", Name: "unknown"}}: "x",
	}
	want := compute(t, map[string]string{"http://x/a.html": raw})
	differences := func(cells map[percolator.CellKey]string) int {
		have, err := Read(t.Context(), source(cells))
		if err != nil {
			t.Fatal(err)
		}
		n, first := Diff(want, have, 1)
		if len(first) != min(n, 1) {
			t.Errorf("%d differences, %d returned", n, len(first))
		}
		return n
	}
	if n := differences(good); n != 0 {
		t.Fatalf("%d differences where there are none", n)
	}
	for key := range good {
		ignored := slices.Contains([]string{schema.Raw, schema.From, "unknown"}, key.Column.Name)
		for _, change := range []func(map[percolator.CellKey]string){
			func(c map[percolator.CellKey]string) { c[key] += "x" },
			func(c map[percolator.CellKey]string) { delete(c, key) },
		} {
			bad := maps.Clone(good)
			change(bad)
			if n := differences(bad); (n == 0) != ignored {
				t.Errorf("%v changed: %d differences", key, n)
			}
		}
	}
	more := maps.Clone(good)
	more[percolator.CellKey{
		Row: "http://x/c.html", Column: schema.Pages(schema.Canon),
	}] = "http://x/a.html"
	if differences(more) != 1 {
		t.Error("a canonical URL too many is no difference")
	}
}

func TestErrors(t *testing.T) {
	bad := errors.New("bad disk")
	if _, err := Compute(func(yield func(Raw, error) bool) {
		yield(Raw{}, bad)
	}); !errors.Is(err, bad) {
		t.Errorf("compute: %v", err)
	}
	failing := func(context.Context, ...percolator.Column) iter.Seq2[percolator.Cell, error] {
		return func(yield func(percolator.Cell, error) bool) { yield(percolator.Cell{}, bad) }
	}
	if _, err := Read(t.Context(), failing); !errors.Is(err, bad) {
		t.Errorf("read: %v", err)
	}
	if _, err := Files(t.TempDir(), 0); !errors.Is(err, page.ErrNoPages) {
		t.Errorf("files: %v", err)
	}
	d := Difference{"anchor", "k", "", "x"}
	if s := d.String(); !strings.Contains(s, `want nothing, have "x"`) {
		t.Error(s)
	}
}
