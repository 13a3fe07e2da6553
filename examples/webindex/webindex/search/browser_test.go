package search

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
	"github.com/percolator-go/percolator/test/browser"
)

// hostile lists page content that tries to escape from the place where it is displayed. Each would
// set window.pwned.
var hostile = []string{
	`<script>window.pwned = 1</script>`,
	`"><script>window.pwned = 2</script>`,
	`' onmouseover='window.pwned = 3' autofocus onfocus='window.pwned = 4`,
	`" onmouseover="window.pwned = 5" autofocus onfocus="window.pwned = 6`,
	`<img src=x onerror="window.pwned = 7">`,
	`</q></p></li></mark></title></style><svg onload="window.pwned = 8">`,
	`{{.}}<!--<script>-->`,
	`</textarea><iframe srcdoc="<script>parent.pwned = 9</script>"></iframe>`,
}

// inspect triggers all pointer and focus handlers and returns a summary of the page.
const inspect = `(() => {
	for (const e of document.querySelectorAll('details')) e.open = true
	const all = [...document.querySelectorAll('*')]
	for (const e of all) {
		e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))
		if (e.focus) e.focus()
	}
	return {
		Pwned: window.pwned !== undefined,
		Elements: document.querySelectorAll('script, img, svg, iframe, style, object, embed, textarea').length,
		Handlers: all.filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length,
		Protocols: [...document.querySelectorAll('a')].map(a => a.protocol),
		Text: document.body.innerText + document.querySelector('input').value,
	}
})()`

// A crawled page full of markup is displayed as text: none of it is executed or becomes an element
// or a wrong link.
func TestHostilePage(t *testing.T) {
	s := newSite(t)
	all := strings.Join(hostile, " ")
	urls := []string{
		`http://evil.example/"><script>window.pwned=10</script>`, `javascript:window.pwned=11`,
		`data:text/html,<script>window.pwned=12</script>`,
	}
	cluster := map[string]string{"javascript:window.pwned=13//http://": schema.KindPage}
	for i, u := range urls {
		hash := string(rune('a' + i))
		s.page(export.Document{
			URL: u, Title: "needle " + all, Text: all + " needle " + all, Anchors: hostile,
			Document: schema.Document{Hash: hash, Linking: 3},
		})
		s.members(hash, cluster)
	}
	b := browser.Start(t)
	for _, query := range []string{"needle", "needle script window.pwned", hostile[0], hostile[1],
		hostile[4]} {
		b.Open("http://" + s.Addr() + "/?q=" + url.QueryEscape(query))
		got := browser.Eval[struct {
			Pwned              bool
			Elements, Handlers int
			Protocols          []string
			Text               string
		}](b, inspect)
		if got.Pwned || got.Elements > 0 || got.Handlers > 0 {
			t.Errorf("%q: a script ran: %v; %d elements and %d handlers came from a page", query,
				got.Pwned, got.Elements, got.Handlers)
		}
		for _, protocol := range got.Protocols {
			if protocol != "http:" && protocol != "https:" {
				t.Errorf("%q: there is a link to %s", query, protocol)
			}
		}
		if !strings.Contains(got.Text, query) {
			t.Errorf("%q: the query is not shown as it is", query)
		}
		if query != "needle" {
			continue
		}
		// as many as the displayed anchors
		for _, want := range append(slices.Clone(hostile[:6]), urls...) {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%q is not shown as text in %s", want, got.Text)
			}
		}
	}
	refused := func(alarm string) bool { // queries without a word
		return strings.Contains(alarm, "status of 400")
	}
	if seen := slices.DeleteFunc(b.Alarms(), refused); len(seen) > 0 {
		t.Errorf("the pages did what they may not: %q", seen)
	}
}

// The page works by keyboard: the field has the focus, Enter searches, the next page is a link.
func TestByKeyboard(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		s.page(export.Document{
			URL: "http://go.example/" + name, Title: "Gopher " + name, Text: "About gophers.",
		})
	}
	b := browser.Start(t)
	b.Resize(360, 640)
	b.Open("http://" + s.Addr() + "/")
	b.Await("the focus on the field", `document.activeElement.name === "q"`)
	b.Press("gopher" + browser.Enter)
	b.Await("the first page", `document.querySelector(".results")`)
	marks := browser.Eval[int](b, `document.querySelectorAll("mark").length`)
	wide := browser.Eval[int](b, `document.documentElement.scrollWidth - window.innerWidth`)
	browser.Eval[bool](b, `document.querySelector("a[rel=next]").focus() === undefined`)
	b.Press(browser.Enter)
	b.Await("the second page", `document.querySelector("a[rel=prev]")`)
	second := browser.Eval[string](b, `document.querySelector(".summary").innerText`)
	field := browser.Eval[string](b, `document.querySelector("input").value`)
	if field != "gopher" || marks < 10 || !strings.Contains(second, "11–11 shown") {
		t.Errorf("field %q, %d marked words, the second page shows %q", field, marks, second)
	}
	if wide > 0 {
		t.Errorf("on a phone the page is %d pixels wider than the screen", wide)
	}
	if seen := b.Alarms(); len(seen) > 0 {
		t.Errorf("the browser complains: %q", seen)
	}
}
