package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBrowser: keys arrive, forbidden actions of a page are recorded, and pale text is found.
func TestBrowser(t *testing.T) {
	b := Start(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`<!doctype html><style>a:focus { outline: 2px solid }</style><form action="/"><input name="q" autofocus></form><a href="/x">link</a><p style="color:#eee">pale</p>
			<img src="/missing"><script>console.log("x"); setTimeout(() => { throw new Error("thrown") })</script>`))
	}))
	t.Cleanup(server.Close)
	b.Open(server.URL + "/")
	b.Open(server.URL + "/#fragment")
	b.Await("the focus on the field", `document.activeElement.name === "q"`)
	b.Press("Aé" + ArrowLeft + "1" + Escape)
	if got := Eval[string](b, `document.querySelector("input").value`); got != "A1é" {
		t.Errorf("typed %q", got)
	}
	b.Press(Enter)
	b.Await("the form's page", `location.search === "?q=A1%C3%A9" && document.readyState === "complete"`)
	Eval[bool](b, `document.querySelector("input").focus() === undefined`)
	if at := b.Tab(); at != (Focused{"link", "/x", true}) {
		t.Errorf("Tab: %+v", at)
	}
	if pale := b.Faint(4.5); len(pale) != 1 || !strings.Contains(pale[0], "pale") {
		t.Errorf("hard to read: %q", pale)
	}
	all := strings.Join(b.Alarms(), "\n")
	for _, want := range []string{"the console: log", "thrown", "/missing"} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not noted:\n%s", want, all)
		}
	}
	if hosts := b.Hosts(); len(hosts) != 1 || "http://"+hosts[0] != server.URL {
		t.Errorf("requests to %q", hosts)
	}
}
