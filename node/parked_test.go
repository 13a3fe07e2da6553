package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/node"
)

// parkedPage is a page of parked notifications as a program decodes it.
type parkedPage struct {
	Parked []struct {
		Row, Error string
		Attempts   int
	}
	More  bool
	Last  string
	Error string
}

// askParked requests a page over HTTP.
func askParked(t *testing.T, n *node.Node, parameters url.Values) (code int, page parkedPage) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, 30e9), http.MethodGet,
		"http://"+n.HTTPAddr()+"/api/v1/parked?"+parameters.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, page
}

// TestParkedPages: the page lists an observer's parked notifications, with the error of the last
// run, each row once; waiting ones are not listed. The errors are bounded.
func TestParkedPages(t *testing.T) {
	const rows = 120
	fails := func(_ context.Context, _ *percolator.Tx, n percolator.Notification) error {
		if strings.HasSuffix(n.Row, "7") {
			return errors.New("long " + strings.Repeat("x", 5000))
		}
		return fmt.Errorf("no room for %s", n.Row)
	}
	n := open(t, "", func(c *node.Config) {
		quick(c)
		c.HTTP = "127.0.0.1:0"
		c.Observers = func(r *percolator.Registry) {
			r.Strong("fails", input, fails, percolator.MaxAttempts(2))
			r.Strong("idle", percolator.Column{Table: "pages", Name: "idle"}, fails)
		}
	})
	write(t, n.DB(), 0, rows)
	eventually(t, "all are parked", func() bool { return stateOf(t, n, "fails").Parked == rows })
	seen, ask := map[string]bool{}, url.Values{"observer": {"fails"}}
	for pages := 1; ; pages++ {
		code, page := askParked(t, n, ask)
		if code != http.StatusOK || len(page.Parked) > 50 || pages > 5 {
			t.Fatalf("page %d: %d, %d rows: %s", pages, code, len(page.Parked), page.Error)
		}
		for _, p := range page.Parked {
			long := strings.HasSuffix(p.Row, "7")
			if seen[p.Row] || p.Attempts != 2 || p.Error == "" || len(p.Error) > 1100 ||
				!long && !strings.Contains(p.Error, "no room for "+p.Row) {
				t.Errorf("%.200v", p)
			}
			seen[p.Row] = true
		}
		if !page.More {
			break
		}
		ask.Set("after", page.Last)
	}
	if len(seen) != rows {
		t.Errorf("%d rows in all pages", len(seen))
	}
	if code, page := askParked(t, n, url.Values{"observer": {"idle"}}); code != http.StatusOK ||
		len(page.Parked) > 0 || page.More {
		t.Errorf("of an observer that has nothing: %d %+v", code, page)
	}
	for _, wrong := range []url.Values{
		{"observer": {"none"}}, {}, {"observer": {"fails"}, "after": {`"x`}},
	} {
		if code, page := askParked(t, n, wrong); code != http.StatusBadRequest || page.Error == "" {
			t.Errorf("%v: %d %+v", wrong, code, page)
		}
	}
}
