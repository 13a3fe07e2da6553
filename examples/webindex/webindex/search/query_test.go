package search

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/blevesearch/bleve/v2/search"

	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]term{
		"":                       nil,
		"  \t ":                  nil,
		"reader":                 {{text: "reader"}},
		" read  write ":          {{text: "read"}, {text: "write"}},
		`"read all" -"no \ way"`: {{text: "read all"}, {text: `no \ way`, not: true}},
		`"a""b"c`:                {{text: "a"}, {text: "b"}, {text: "c"}},
		"title:io -url:test": {
			{field: export.FieldTitle, text: "io"},
			{field: export.FieldURL, text: "test", not: true},
		},
		`anchor:"the docs"`: {{field: export.FieldAnchors, text: "the docs"}},
		"http://h/x a:b":    {{text: "http://h/x"}, {text: "a:b"}}, // not one of the fields: literal
		"größe":             {{text: "größe"}},
	} {
		if got, err := parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`say "hello`:                        "quotation mark",
		"a -":                               "minus sign",
		"- a":                               "minus sign",
		"title:":                            "must directly follow title:",
		"title: x":                          "must directly follow title:",
		"\xff":                              "no text",
		strings.Repeat("ä", maxQuery+1):     "at most 256 characters",
		strings.Repeat("a ", maxTerms+1):    "at most 16 words",
		strings.Repeat("\"x\"", maxTerms+1): "at most 16 words",
	} {
		if _, err := parse(text); !errors.Is(err, errQuery) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want %q", text, err, want)
		}
	}
}

// FuzzParse: any input is parsed or refused.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`a "b c" -d title:e`, `-"`, "url:", "\xff", " : "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		terms, err := parse(text)
		if err != nil && !errors.Is(err, errQuery) {
			t.Fatal(err)
		}
		if len(terms) > maxTerms {
			t.Fatalf("%d terms", len(terms))
		}
	})
}

// at returns the positions of words in a text.
func at(text string, words ...string) search.TermLocationMap {
	found := search.TermLocationMap{}
	for _, w := range words {
		for from := 0; ; {
			i := strings.Index(text[from:], w)
			if i < 0 {
				break
			}
			from += i
			found[w] = append(found[w], &search.Location{
				Start: uint64(from), End: uint64(from + len(w)),
			})
			from += len(w)
		}
	}
	return found
}

// show writes segments with brackets around the matches.
func show(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		if s.Match {
			b.WriteString("[" + s.Text + "]")
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

func TestSnippet(t *testing.T) {
	filler := strings.Repeat("äöü filler ", 60)
	text := "one here. " + filler + "one and two together" + filler
	got := show(snippet(text, at(text, "one", "two")))
	if !strings.Contains(got, "[one] and [two] together") || !strings.HasPrefix(got, "… ") ||
		!strings.HasSuffix(got, " …") {
		t.Errorf("%q: not the part with both words", got)
	}
	if len(got) > snippetSize+20 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	for text, want := range map[string]string{"": "", "short": "short", "a one b": "a [one] b",
		"oneone": "[one][one]"} {
		if got := show(snippet(text, at(text, "one"))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := show(snippet("a one b", search.TermLocationMap{"x": {{Start: 2, End: 99},
		{Start: 5, End: 3}}})); got != "a one b" {
		t.Errorf("places outside of the text: %q", got)
	}
	long := strings.Repeat("ä", 5000)
	if got := show(snippet(long, nil)); len(got) > snippetSize+10 ||
		strings.ContainsRune(got, '\ufffd') {
		t.Errorf("a text of one word: %d bytes", len(got))
	}
}

func TestTitle(t *testing.T) {
	if got := show(title("The one", "http://h/", at("The one", "one"))); got != "The [one]" {
		t.Error(got)
	}
	if got := show(title(" ", "http://h/", nil)); got != "http://h/" {
		t.Error(got)
	}
	if got := show(title(strings.Repeat("word ", 1000), "", nil)); len(got) > maxTitle+10 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestPlace(t *testing.T) {
	for text, want := range map[string]bool{
		"http://h.example/a": true, "https://h.example/": true, "HTTP://h.example/": true,
		"javascript:alert(1)": false, "JaVaScRiPt://h/%0aalert(1)": false,
		"data:text/html,x": false, "//h.example/": false,
		"http:": false, "": false, "vbscript:x": false, "\thttp://h/": false, "http://%zz": false,
	} {
		if got := place(text); got.Link != want || got.URL != text {
			t.Errorf("%q: %+v, want %v", text, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000",
		1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
