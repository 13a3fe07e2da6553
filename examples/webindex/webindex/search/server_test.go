package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
	"github.com/percolator-go/percolator/node"
)

// site is a server with its own index and repository.
type site struct {
	*Server
	t        *testing.T
	db       *percolator.DB
	exporter *export.Exporter
	status   Status
	fault    error // of status
	version  percolator.Timestamp
}

func newSite(t *testing.T) *site {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.Dir, cfg.Insecure, cfg.Listen, cfg.HTTP = filepath.Join(t.TempDir(), "node"), true,
		"127.0.0.1:0", ""
	cfg.Logger = slog.New(slog.DiscardHandler)
	n, err := node.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, db: n.DB(), exporter: export.New(), status: Status{Pages: 1234}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var err error
		if s.Server != nil {
			err = s.Close(ctx)
		}
		if err := errors.Join(err, n.Close(ctx), s.exporter.Close()); err != nil {
			t.Error(err)
		}
	})
	for _, table := range schema.Tables() {
		if err := s.db.CreateTable(t.Context(), percolator.TableSpec{Name: table}); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "index")
	if err := s.exporter.Start(t.Context(),
		export.Config{Dir: dir, Cluster: "test", DB: s.db}); err != nil {
		t.Fatal(err)
	}
	s.Server, err = Open(Config{
		Addr: "127.0.0.1:0", Index: s.exporter.Index(), DB: s.db, Logger: cfg.Logger,
		Status: func(context.Context) (Status, error) { return s.status, s.fault },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// page adds a page to the index.
func (s *site) page(d export.Document) {
	s.t.Helper()
	if d.Rank == 0 {
		d.Rank = schema.BaseRank
	}
	s.version++
	if err := s.exporter.Apply(s.t.Context(), []export.Change{
		{Row: d.URL, Version: s.version, Value: d},
	}); err != nil {
		s.t.Fatal(err)
	}
}

// members adds URLs to the cluster of a hash.
func (s *site) members(hash string, kinds map[string]string) {
	s.t.Helper()
	err := s.db.Transact(s.t.Context(), func(_ context.Context, tx *percolator.Tx) error {
		for url, kind := range kinds {
			tx.Set(schema.Row(hash, url), schema.MemberKind(), []byte(kind))
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// get requests a page and checks the properties of every response.
func (s *site) get(path string) (code int, body string) {
	s.t.Helper()
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second,
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.Addr()+path,
		nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.Header.Get("Content-Security-Policy") != security ||
		resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		s.t.Errorf("%s: headers %v", path, resp.Header)
	}
	return resp.StatusCode, string(text)
}

// has sends a query and checks which texts the page contains and lacks.
func (s *site) has(query string, code int, want []string, not ...string) {
	s.t.Helper()
	got, body := s.get("/?q=" + url.QueryEscape(query))
	if got != code {
		s.t.Errorf("%q: status %d, want %d", query, got, code)
	}
	for _, w := range want {
		if !strings.Contains(body, w) {
			s.t.Errorf("%q: %q is not in\n%s", query, w, body)
		}
	}
	for _, w := range not {
		if strings.Contains(body, w) {
			s.t.Errorf("%q: %q is in\n%s", query, w, body)
		}
	}
}

func TestResults(t *testing.T) {
	s := newSite(t)
	s.page(export.Document{
		URL: "http://go.example/io.html", Title: "Package io",
		Text:     "Reader is the interface that wraps reading.",
		Anchors:  []string{"io", "the io package", "a", "b", "c", "d", "seventh"},
		Document: schema.Document{Hash: "h1", Rank: 2340, Linking: 12},
	})
	s.page(export.Document{
		URL: "http://go.example/net.html", Title: "Package net", Text: "Reading from the network.",
	})
	s.members("h1", map[string]string{
		"http://go.example/io.html":     schema.KindPage,
		"http://mirror.example/io.html": schema.KindPage,
		"http://go.example/old-io.html": schema.KindStub,
	})
	s.has("io", 200, []string{
		"One page", "Package <mark>io</mark>", `<a href="http://go.example/io.html"`, "rank 2.34",
		"linked from 12 pages",
		"<q>the io package</q>", "and 1 more", "2 other addresses", "http://mirror.example/io.html",
		"redirects here", "same content",
	}, "seventh", "Package net")
	// stemmed
	s.has("reads", 200, []string{"2 pages", "<mark>reading</mark>", "<mark>Reading</mark>"})
	s.has("reading -network", 200, []string{"Package io"}, "Package net")
	s.has(`"interface that wraps"`, 200, []string{"Package io"}, "Package net")
	s.has(`"wraps interface that"`, 200, []string{"No page has all of that"})
	s.has("title:reading", 200, []string{"No page has all of that"})
	s.has("anchor:seventh", 200, []string{"Package"}, "Package net")
	s.has("url:net", 200, []string{"Package net"})
	s.has("go.example/net", 200, []string{"Package net"}, "/io.html")
	s.has("", 200, []string{"1,234 pages indexed", "up to date", "Every word must be"})
}

// TestAnswersExplain: an invalid query or page number gets a page that says what is wrong. A status
// that cannot be read is shown as not known.
func TestAnswersExplain(t *testing.T) {
	s := newSite(t)
	s.page(export.Document{
		URL: "http://go.example/io.html", Title: "Package io", Text: "The reader.",
	})
	s.has(`say "hello`, 400, []string{"A quotation mark has no partner", `value="say &#34;hello"`})
	s.has("-io", 400, []string{"only leave pages out."})
	s.has("the", 400, []string{"There is nothing to look for"})
	s.has("!!!", 400, []string{"There is nothing to look for"})
	s.has("the reader", 200, []string{"One page"})
	s.has("*", 400, nil)
	s.has("/.*/", 400, nil)
	s.has(strings.Repeat("long ", 4000)[:10000], 400, []string{"At most 256 characters"},
		"long long")
	s.has("\x00\xff", 400, []string{"That is no text."})
	for _, page := range []string{"0", "-1", "x", "51", "99999999999999999999"} {
		if code, body := s.get("/?q=io&page=" + page); code != 400 ||
			!strings.Contains(body, "Pages of results are numbered from 1 to 50") {
			t.Errorf("page %s: %d\n%s", page, code, body)
		}
	}
	if code, body := s.get("/?q=io&page=7"); code != 200 ||
		!strings.Contains(body, "no results on this page") {
		t.Errorf("%d\n%s", code, body)
	}
	if code, _ := s.get("/elsewhere"); code != 404 {
		t.Error(code)
	}
	if code, body := s.get("/style.css"); code != 200 ||
		!strings.Contains(body, "prefers-color-scheme: dark") {
		t.Error(code)
	}
	s.status = Status{Pages: 1, Waiting: 12345, Oldest: 2340 * time.Millisecond}
	s.has("", 200, []string{"1 pages indexed", "2.3s behind", "12,345 changes waiting"})
	s.fault = errors.New("no answer")
	s.has("io", 200, []string{"One page", "not known just now"})
}

func TestPaging(t *testing.T) {
	s := newSite(t)
	for i := range 25 {
		s.page(export.Document{
			URL: fmt.Sprintf("http://go.example/%02d.html", i), Title: "Equal",
			Text: "The equal text.",
		})
	}
	seen := map[string]bool{}
	for page := 1; page <= 3; page++ {
		_, body := s.get(fmt.Sprintf("/?q=equal&page=%d", page))
		for i := range 25 {
			url := fmt.Sprintf(`<p class="url">http://go.example/%02d.html</p>`, i)
			if strings.Contains(body, url) {
				if seen[url] {
					t.Errorf("%s is on two pages", url)
				}
				seen[url] = true
			}
		}
		if next := strings.Contains(body, fmt.Sprintf("page=%d\"", page+1)); next != (page < 3) {
			t.Errorf("page %d: a next page: %v", page, next)
		}
		if !strings.Contains(body, "25 pages") ||
			!strings.Contains(body, fmt.Sprintf("%d of 3", page)) {
			t.Errorf("page %d:\n%s", page, body)
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d results on three pages, want 25", len(seen))
	}
}

// Among equal pages the one of higher rank comes first; a page about the words comes before a
// high-ranked one that only mentions them.
func TestOrder(t *testing.T) {
	s := newSite(t)
	long := strings.Repeat("something else entirely ", 100)
	s.page(export.Document{
		URL: "http://a.example/", Title: "Gopher", Text: "A gopher.",
		Document: schema.Document{Rank: 150},
	})
	s.page(export.Document{
		URL: "http://b.example/", Title: "Gopher", Text: "A gopher.",
		Document: schema.Document{Rank: 9000},
	})
	s.page(export.Document{
		URL: "http://c.example/", Title: "Start", Text: long + "gopher",
		Document: schema.Document{Rank: 90000},
	})
	_, body := s.get("/?q=gopher")
	a, b, c := strings.Index(body, "http://a.example/"), strings.Index(body, "http://b.example/"),
		strings.Index(body, "http://c.example/")
	if a < 0 || b < 0 || c < 0 || b > a || a > c {
		t.Errorf("order: a at %d, b at %d, c at %d", a, b, c)
	}
}

// TestForeignHost: a site whose own name resolves to the server (DNS rebinding) cannot read
// anything; requests by address, localhost and the served name can.
func TestForeignHost(t *testing.T) {
	h := onlyOwnHost("Search.internal:7804",
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"127.0.0.1:7804": 200, "[::1]:7804": 200, "[::1]": 200, "localhost:1": 200,
		"search.internal": 200, "SEARCH.internal.:7804": 200,
		"evil.example": 421, "evil.example:7804": 421, "127.0.0.1.evil.example": 421,
		"search.internal.evil.example": 421,
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		req.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}

// TestServesOwnHostOnly: the server refuses requests to another host's name.
func TestServesOwnHostOnly(t *testing.T) {
	s := newSite(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second,
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("status %d", resp.StatusCode)
	}
}
