package page

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	raw := `<!doctype html><html><head><title> A
	<b>title</b> </title><style>p{}</style></head><body><h1>Head</h1><p>Some&nbsp;text<script>var x</script>
	<a href="../b/x.html#frag">  the <i>b</i> </a> <a href="http://Other.example:80/">home</a>
	<a href="#here">self</a><a href="mailto:a@b">mail</a><a name="n">none</a><a href="/b/x.html">again</a></body></html>`
	p := Parse("http://h.example/a/y.html", []byte(raw))
	want := []Link{
		{"http://h.example/b/x.html", []string{"the b", "again"}},
		{"http://other.example/index.html", []string{"home"}},
	}
	if !reflect.DeepEqual(p.Links, want) {
		t.Errorf("links %q, want %q", p.Links, want)
	}
	if p.Title != "A <b>title</b>" {
		t.Errorf("title %q", p.Title)
	}
	if p.Text != "Head Some text the b home self mail none again" {
		t.Errorf("text %q", p.Text)
	}
	if p.Redirect != "" || p.Hash != Hash([]byte(raw)) {
		t.Errorf("redirect %q, hash %q", p.Redirect, p.Hash)
	}
}

func TestRedirect(t *testing.T) {
	for content, want := range map[string]string{
		"0; url=../t.html":        "http://h.example/t.html",
		"0;URL='http://x.y/z'":    "http://x.y/z",
		"5 ; Url = \"/q?a=b#c\"":  "http://h.example/q?a=b",
		"30":                      "",
		"0; url=ftp://h.example/": "",
		// an empty reference points to the page itself
		"0; url=": "http://h.example/a/y.html",
	} {
		raw := `<meta http-equiv="Refresh" content='` + strings.ReplaceAll(content, "'", "&#39;") +
			`'><a href="l.html">l</a>`
		p := Parse("http://h.example/a/y.html", []byte(raw))
		if p.Redirect != want {
			t.Errorf("%s: redirect %q, want %q", content, p.Redirect, want)
		}
		if (want == "") != (len(p.Links) == 1) {
			t.Errorf("%s: links %q", content, p.Links)
		}
	}
}

func TestBase(t *testing.T) {
	p := Parse("http://h.example/a.html", []byte(`<base href="/deep/er/"><a href="x.html">x</a>`))
	if len(p.Links) != 1 || p.Links[0].Target != "http://h.example/deep/er/x.html" {
		t.Errorf("links %q", p.Links)
	}
}

func TestBounds(t *testing.T) {
	var b strings.Builder
	for range MaxAnchors + 2 {
		b.WriteString(`<a href="first.html">` + strings.Repeat("é", MaxAnchor) + `</a>`)
	}
	for i := range MaxLinks + 5 {
		b.WriteString(`<a href="` + strings.Repeat("x", i%900+1) + `/` +
			strings.Repeat("y", i/900+1) + `.html">l</a>`)
	}
	b.WriteString(strings.Repeat("<div>", 400) + strings.Repeat("word ", MaxText/4))
	p := Parse("http://h.example/a.html", []byte(b.String()))
	if len(p.Links) != MaxLinks || len(p.Links[0].Anchors) != MaxAnchors {
		t.Errorf("%d links, %d anchors", len(p.Links), len(p.Links[0].Anchors))
	}
	if a := p.Links[0].Anchors[0]; len(a) != MaxAnchor {
		t.Errorf("an anchor of %d bytes", len(a))
	}
	if len(p.Text) > MaxText || len(p.Text) < MaxText/2 {
		t.Errorf("a text of %d bytes", len(p.Text))
	}
}

func TestNormalize(t *testing.T) {
	for raw, want := range map[string]string{
		"http://H.example":                                "http://h.example/index.html",
		"https://h.example:443/a/../b/":                   "http://h.example/b/index.html",
		"http://h.example//a//b.html#f":                   "http://h.example/a/b.html",
		"http://h.example/a b%20c":                        "http://h.example/a%20b%20c",
		"http://h.example/%2e%2e/x":                       "http://h.example/x",
		"http://u@h.example/":                             "http://h.example/index.html",
		"//h.example/":                                    "",
		"javascript:alert(1)":                             "",
		"http://h.example/" + strings.Repeat("a", MaxURL): "",
	} {
		if got, ok := Normalize(raw); got != want || ok != (want != "") {
			t.Errorf("%s: %q %v, want %q", raw, got, ok, want)
		}
	}
}

func TestTree(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"h.example/b.html": "b", "h.example/a/x y.htm": "a", "h.example/c.txt": "no",
		"stray.html":         "no",
		"h.example/big.html": strings.Repeat("x", MaxSize+1),
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pages, skipped, err := Tree(dir)
	if err != nil || skipped != 3 || len(pages) != 2 {
		t.Fatalf("%v, %d skipped, %v", pages, skipped, err)
	}
	if pages[0].URL != "http://h.example/a/x%20y.htm" || pages[1].URL != "http://h.example/b.html" {
		t.Errorf("%v", pages)
	}
	if _, _, err := Tree(t.TempDir()); !errors.Is(err, ErrNoPages) {
		t.Errorf("empty tree: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("../x", `<a href="b">t</a>`)
	f.Fuzz(func(t *testing.T, ref, body string) {
		if n, ok := Normalize(ref); ok {
			if again, ok := Normalize(n); !ok || again != n {
				t.Errorf("%q is not a fixed point: %q", n, again)
			}
		}
		p := Parse("http://h.example/a/b.html", []byte(body))
		for _, l := range p.Links {
			if n, ok := Normalize(l.Target); !ok || n != l.Target {
				t.Errorf("target %q is not in normal form", l.Target)
			}
		}
	})
}
