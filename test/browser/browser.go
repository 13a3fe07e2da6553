// Package browser drives a page in a real Chromium, for tests: it starts one on an empty
// profile, records what our pages must never do, and measures their legibility. Tests are skipped
// without Chromium.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Timeout bounds a test in the browser, its start included.
const Timeout = 2 * time.Minute

// Screenshots names the folder that Screenshot writes to, in the environment; empty means none.
const Screenshots = "PERCOLATOR_SCREENSHOTS"

// Keys that Press accepts among texts.
const (
	Enter     = "\r"
	Escape    = "\x1b"
	ArrowLeft = "\u2190"
	Tab       = "\t"
)

// Browser is one tab. Its methods are for the test's goroutine.
type Browser struct {
	t    *testing.T
	ctx  context.Context
	conn *conn

	mu     sync.Mutex
	alarms []string
	hosts  map[string]bool // that requests went to
	loaded map[string]bool // the documents that are loaded, by their loader's id
}

// Start opens a browser of 1280 by 800 pixels, until the test ends.
func Start(t *testing.T) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes a while to start")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium to test with: apt-get install chromium")
	}
	// Not of t.Context, which ends before the cleanups do.
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	t.Cleanup(cancel)
	b := &Browser{t: t, ctx: ctx, hosts: map[string]bool{}, loaded: map[string]bool{}}
	if b.conn, err = launch(ctx, path, t.TempDir(), b.note); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.conn.close(); err != nil {
			t.Error(err)
		}
	})
	b.Resize(1280, 800)
	return b
}

// note records what a page did that it may not, the hosts of its requests, and which documents are
// loaded.
func (b *Browser) note(method string, params json.RawMessage) {
	var e struct {
		Message  string // of a dialog
		Type     string // of a call of the console
		Name     string // of an event in the life of a document
		LoaderID string
		Request  struct{ URL string }
		Entry    struct{ Text, URL string }

		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(params, &e) != nil {
		return // an event whose fields have other types: of no interest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch method {
	case "Page.javascriptDialogOpening":
		b.alarms = append(b.alarms, "a dialog: "+e.Message)
	case "Runtime.exceptionThrown":
		b.alarms = append(b.alarms, "a script: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		b.alarms = append(b.alarms, "the console: "+e.Type)
	case "Log.entryAdded":
		b.alarms = append(b.alarms, fmt.Sprintf("the log: %s %s", e.Entry.Text, e.Entry.URL))
	case "Page.lifecycleEvent":
		b.loaded[e.LoaderID] = b.loaded[e.LoaderID] || e.Name == "load"
	case "Network.requestWillBeSent":
		if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" {
			b.hosts[u.Host] = true
		}
	}
}

// Alarms returns what the pages did that they may not: dialogs, faults of scripts, lines on
// the console, resources that failed or that the content policy refused.
func (b *Browser) Alarms() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.alarms)
}

// Hosts returns the hosts that requests went to.
func (b *Browser) Hosts() (hosts []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.hosts {
		hosts = append(hosts, h)
	}
	return hosts
}

// call calls a method of the DevTools protocol.
func (b *Browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	if err := b.conn.call(b.ctx, method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

// Resize sets the size of the tab in pixels.
func (b *Browser) Resize(width, height int64) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
}

// Open loads an address and waits until the page is loaded.
func (b *Browser) Open(address string) {
	b.t.Helper()
	var to struct{ LoaderID, ErrorText string }
	b.call("Page.navigate", map[string]any{"url": address}, &to)
	if to.ErrorText != "" {
		b.t.Fatalf("%s: %s", address, to.ErrorText)
	}
	b.wait(address, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return to.LoaderID == "" || b.loaded[to.LoaderID] // no LoaderID: only the fragment changes
	})
}

// Press types a text, in which keys such as Enter may occur.
func (b *Browser) Press(keys string) {
	b.t.Helper()
	for _, key := range keys {
		text := string(key)
		event := map[string]any{"type": "keyDown", "key": text, "text": text}
		switch text {
		case Enter:
			event["key"], event["windowsVirtualKeyCode"] = "Enter", 13
		case Tab:
			event = map[string]any{"type": "keyDown", "key": "Tab", "windowsVirtualKeyCode": 9}
		case Escape:
			event = map[string]any{"type": "keyDown", "key": "Escape", "windowsVirtualKeyCode": 27}
		case ArrowLeft:
			event = map[string]any{"type": "keyDown", "key": "ArrowLeft", "windowsVirtualKeyCode": 37}
		}
		b.call("Input.dispatchKeyEvent", event, nil)
		event["type"] = "keyUp"
		delete(event, "text")
		b.call("Input.dispatchKeyEvent", event, nil)
	}
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](b *Browser, expression string) (value T) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value *T }
		ExceptionDetails struct{ Exception struct{ Description string } }
	}
	params := map[string]any{"expression": expression, "returnByValue": true}
	b.wait(expression, func() bool {
		err := b.conn.call(b.ctx, "Runtime.evaluate", params, &answer)
		// A page that is being replaced has no execution context.
		if err != nil && !strings.Contains(err.Error(), "context") {
			b.t.Fatal(err)
		}
		return err == nil
	})
	if answer.Result.Value == nil {
		b.t.Fatalf("%s: no value: %s", expression, answer.ExceptionDetails.Exception.Description)
	}
	return *answer.Result.Value
}

// wait calls ready until it returns true.
func (b *Browser) wait(what string, ready func() bool) {
	b.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s: not in time", what)
		}
	}
}

// Await waits until an expression is true, and returns the time that took.
func (b *Browser) Await(what, expression string) time.Duration {
	b.t.Helper()
	began := time.Now()
	b.wait(what, func() bool { return Eval[bool](b, "Boolean("+expression+")") })
	return time.Since(began)
}

// Scheme emulates a reader's preference for "light" or "dark".
func (b *Browser) Scheme(scheme string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// Screenshot writes a picture of the tab if the environment names a folder.
func (b *Browser) Screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv(Screenshots)
	if folder == "" {
		return
	}
	var picture struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{}, &picture)
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture.Data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Flaws returns texts of low contrast in the light or the dark scheme, and parts wider than a
// phone's screen of 390 pixels or a laptop's of 1440 or 1280. It takes screenshots, and leaves the
// tab at 1280 pixels, in the dark scheme.
func (b *Browser) Flaws(name string) (flaws []string) {
	b.t.Helper()
	for _, width := range []int64{390, 1440, 1280} {
		b.Resize(width, 800)
		for _, scheme := range []string{"light", "dark"} {
			b.Scheme(scheme)
			b.Screenshot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			if width > 1280 {
				continue
			}
			for _, text := range b.Faint(readable) {
				flaws = append(flaws, fmt.Sprintf("hard to read, %s: %s", scheme, text))
			}
		}
		for _, part := range Eval[[]string](b, cut) {
			flaws = append(flaws, fmt.Sprintf("too wide for %d pixels: %s", width, part))
		}
	}
	return flaws
}

// readable is the contrast of level AA of WCAG 2, for texts that are not large.
const readable = 4.5

// cut finds elements that are wider than their container, so that they need scrolling or are
// truncated.
const cut = `[...document.querySelectorAll('*')].filter((e) => {
	const {overflowX, display} = getComputedStyle(e)
	if (e.matches('input, select, option') || display === 'inline') return false
	return e === document.documentElement ? e.scrollWidth > innerWidth
		: overflowX !== 'visible' && e.scrollWidth > e.clientWidth
}).map((e) => (e.getAttribute('aria-label') ?? e.tagName) + ', by ' + (e.scrollWidth - e.clientWidth))`

// Faint returns each text whose contrast with its ground is below least, as WCAG 2 computes
// it.
func (b *Browser) Faint(least float64) []string {
	b.t.Helper()
	return Eval[[]string](b, fmt.Sprintf(`(%s)(%g)`, faint, least))
}

const faint = `(least) => {
	const parts = (c) => c.match(/[\d.]+/g).map(Number)
	const light = (c) => {
		const [r, g, b] = parts(c).slice(0, 3).map((v) => v / 255)
			.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const ground = (e) => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor
			if (parts(c)[3] !== 0) return c
		}
		return 'rgb(255, 255, 255)'
	}
	const found = []
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue
		if (e.closest('noscript, script')) continue
		const [a, b] = [light(getComputedStyle(e).color), light(ground(e))]
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		if (contrast < least) found.push(contrast.toFixed(2) + ': ' + e.textContent.slice(0, 40))
	}
	return found
}`

// Focused describes the focused element.
type Focused struct {
	Text    string // the element's aria-label, or else its text
	Href    string
	Visible bool // it has an outline of at least 2 pixels
}

// Tab moves the focus to the next element and returns it; all fields are empty for the body.
func (b *Browser) Tab() Focused {
	b.t.Helper()
	b.Press(Tab)
	return Eval[Focused](b, `(() => {
		const e = document.activeElement
		if (e === document.body) return {Text: '', Href: '', Visible: false}
		const s = getComputedStyle(e)
		return {Text: e.getAttribute('aria-label') ?? e.textContent, Href: e.getAttribute('href') ?? '',
			Visible: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2}
	})()`)
}
