package search

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/percolator-go/percolator/examples/webindex/export"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// browserTimeout bounds a test in the browser, its start included.
const browserTimeout = time.Minute

// browser starts Chromium on an empty profile. alarms are what a page may never do here:
// open a dialog, or run into a script's fault.
func browser(t *testing.T) (ctx context.Context, alarms func() []string) {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes a while to start")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium to test with: apt-get install chromium")
	}
	// Not of t.Context, which ends before the cleanups do.
	ctx, cancel := context.WithTimeout(context.Background(), browserTimeout)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx,
		append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
			chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox,
			chromedp.DisableGPU,
			chromedp.Flag("disable-component-update", true),
			chromedp.WSURLReadTimeout(browserTimeout))...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	if err := chromedp.Do(ctx); err != nil { // starts it
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends the process, and waits for it: it writes its profile until then
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	var mu sync.Mutex
	var seen []string
	err = chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *page.EventJavascriptDialogOpening:
			seen = append(seen, "a dialog: "+e.Message)
		case *runtime.EventExceptionThrown:
			seen = append(seen, "a script: "+e.ExceptionDetails.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// hostile is what a page may hold to get out of the place where it is shown. Each would
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

// inspect gives the pointer and the focus to whatever may wait for them, and says what
// there is on the page.
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

// A crawled page full of markup is shown as text: nothing of it runs, or becomes an
// element, or a link that is none.
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
	ctx, alarms := browser(t)
	for _, query := range []string{"needle", "needle script window.pwned", hostile[0], hostile[1],
		hostile[4]} {
		err := chromedp.Do(ctx, chromedp.Navigate("http://"+s.Addr()+"/?q="+url.QueryEscape(query)),
			chromedp.WaitVisible(chromedp.CSS("footer")))
		if err != nil {
			t.Fatal(err)
		}
		got, err := chromedp.Run(ctx, chromedp.Evaluate[struct {
			Pwned              bool
			Elements, Handlers int
			Protocols          []string
			Text               string
		}](inspect))
		if err != nil {
			t.Fatal(err)
		}
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
		// as many as anchors are shown
		for _, want := range append(slices.Clone(hostile[:6]), urls...) {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%q is not shown as text in %s", want, got.Text)
			}
		}
	}
	if seen := alarms(); len(seen) > 0 {
		t.Errorf("the pages did what they may not: %v", seen)
	}
}

// The page works by keyboard: the field has the focus, Enter searches, the next page is a
// link away.
func TestByKeyboard(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		s.page(export.Document{
			URL: "http://go.example/" + name, Title: "Gopher " + name, Text: "About gophers.",
		})
	}
	ctx, alarms := browser(t)
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(360, 640),
		chromedp.Navigate("http://"+s.Addr()+"/"),
		chromedp.WaitVisible(chromedp.CSS("footer")),
	)
	focus, err2 := chromedp.Run(ctx, chromedp.Evaluate[string](`document.activeElement.name`))
	err3 := chromedp.Do(ctx, chromedp.KeyEvent("gopher"+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(".results")))
	marks, err4 := chromedp.Run(ctx, chromedp.Evaluate[int](
		`document.querySelectorAll('mark').length`))
	wide, err5 := chromedp.Run(ctx, chromedp.Evaluate[int](
		`document.documentElement.scrollWidth - window.innerWidth`))
	err6 := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(`a[rel=next]`)),
		chromedp.WaitVisible(chromedp.CSS(`a[rel=prev]`)))
	second, err7 := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(".summary")))
	field, err8 := chromedp.Run(ctx, chromedp.Value(chromedp.CSS("input")))
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7, err8); err != nil {
		t.Fatal(err)
	}
	if focus != "q" || field != "gopher" || marks < 10 || !strings.Contains(second, "11–11 shown") {
		t.Errorf("focus %q, field %q, %d marked words, the second page says %q", focus, field,
			marks, second)
	}
	if wide > 0 {
		t.Errorf("on a phone the page is %d pixels wider than the screen", wide)
	}
	if seen := alarms(); len(seen) > 0 {
		t.Error(seen)
	}
}
