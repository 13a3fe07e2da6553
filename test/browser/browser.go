// Package browser drives a page in a real Chromium, for tests: it starts one on an empty
// profile, records what our pages must never do, and measures their legibility. Tests are skipped
// without Chromium.
package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Timeout bounds a test in the browser, its start included.
const Timeout = 2 * time.Minute

// Screenshots names the folder that Screenshot writes to, in the environment; empty: none.
const Screenshots = "PERCOLATOR_SCREENSHOTS"

// Browser is one tab. Its methods are for the test's goroutine.
type Browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	alarms []string
	hosts  map[string]bool // that requests went to
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
	ctx, cancel = chromedp.NewExecAllocator(ctx,
		append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
			chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox,
			chromedp.DisableGPU, chromedp.Flag("disable-component-update", true),
			chromedp.WSURLReadTimeout(Timeout))...)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	b := &Browser{t: t, ctx: ctx, hosts: map[string]bool{}}
	b.Resize(1280, 800) // starts it
	t.Cleanup(func() {  // ends the process, and waits for it: it writes its profile until then
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	return b
}

// note keeps what a page may not do, and where it asks.
func (b *Browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		b.alarms = append(b.alarms, "a dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.alarms = append(b.alarms, "a script: "+text)
	case *runtime.EventConsoleAPICalled:
		b.alarms = append(b.alarms, fmt.Sprintf("the console: %s", e.Type))
	case *log.EventEntryAdded:
		b.alarms = append(b.alarms, fmt.Sprintf("the log: %s %s", e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
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

func (b *Browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// Resize sets the size of the tab in pixels.
func (b *Browser) Resize(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// Open loads an address and waits until the page is loaded.
func (b *Browser) Open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
}

// Press types keys, such as kb.Enter.
func (b *Browser) Press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// Eval returns the value of a JavaScript expression in the page.
func Eval[T any](b *Browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// Await waits until an expression is true, and returns how long that took.
func (b *Browser) Await(what, expression string) time.Duration {
	b.t.Helper()
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !Eval[bool](b, "Boolean("+expression+")") {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.t.Fatalf("%s: not in time", what)
		}
	}
	return time.Since(began)
}

// Scheme emulates a reader's preference for "light" or "dark".
func (b *Browser) Scheme(scheme string) {
	b.t.Helper()
	b.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	})
}

// Screenshot writes a picture of the tab if the environment names a folder.
func (b *Browser) Screenshot(name string) {
	b.t.Helper()
	folder := os.Getenv(Screenshots)
	if folder == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Flaws returns texts of low contrast in the light or the dark scheme, and parts wider than a phone's screen of 390 pixels or a laptop's of 1440 or 1280. It
// takes screenshots, and leaves the tab at 1280.
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

// cut finds what is wider than its place: one would have to scroll sideways, or does not see it.
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
	Text    string // of the element; of a region its name
	Href    string
	Visible bool // something is drawn around it
}

// Tab moves the focus to the next element and returns it; all fields are empty for the body.
func (b *Browser) Tab() Focused {
	b.t.Helper()
	b.Press(kb.Tab)
	return Eval[Focused](b, `(() => {
		const e = document.activeElement
		if (e === document.body) return {Text: '', Href: '', Visible: false}
		const s = getComputedStyle(e)
		return {Text: e.getAttribute('aria-label') ?? e.textContent, Href: e.getAttribute('href') ?? '',
			Visible: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2}
	})()`)
}
