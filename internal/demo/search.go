//go:build linux

package demo

import (
	"context"
	"html/template"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

const (
	searchTimeout = 10 * time.Second
	maxHits       = 20
)

// hit is a page that matches a query.
type hit struct {
	URL, Title string
	Rank       int
}

var searchPage = template.Must(template.New("").Parse(`<!doctype html><title>search</title>
<form><input name="q" value="{{.Query}}" placeholder="harbour" autofocus> <button>search</button></form>
{{with .Fault}}<p>{{.}}</p>{{end}}<p>{{.Found}} of {{.Pages}} indexed pages</p><ol>
{{range .Hits}}<li>{{.Title}} <small>{{.URL}}, rank {{.Rank}}</small></li>{{end}}</ol>
`))

// serveSearch serves a page that searches the indexed titles and texts, best rank first, by a full
// scan. It returns the address and stops when ctx ends.
func serveSearch(ctx context.Context, db *percolator.DB) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{
		ReadHeaderTimeout: searchTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, cancel := context.WithTimeout(r.Context(), searchTimeout)
			defer cancel()
			query := strings.ToLower(strings.TrimSpace(r.FormValue("q")))
			hits, pages, err := search(asked, db, query)
			answer := struct {
				Query, Fault string
				Found, Pages int
				Hits         []hit
			}{query, "", len(hits), pages, hits[:min(len(hits), maxHits)]}
			if err != nil {
				answer.Fault = err.Error()
			}
			_ = searchPage.Execute(w, answer) // the client has disconnected
		}),
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with ctx
	return listener.Addr().String(), nil
}

// search returns the pages that contain the query, best rank first, and how many pages
// are indexed.
func search(ctx context.Context, db *percolator.DB, query string) (hits []hit, pages int,
	err error) {
	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which expires
	var h hit
	found := false
	flush := func() {
		if found && query != "" {
			hits = append(hits, h)
		}
	}
	for c, err := range snapshot.Scan(ctx, percolator.Rows(schema.TablePages),
		schema.Pages(schema.Rank), schema.Pages(schema.Text), schema.Pages(schema.Title)) {
		if err != nil {
			return nil, pages, err
		}
		if c.Row != h.URL {
			flush()
			h, found = hit{URL: c.Row}, false
		}
		switch c.Column.Name {
		case schema.Rank:
			h.Rank, _ = strconv.Atoi(string(c.Value)) // stored as text
		case schema.Title:
			h.Title = string(c.Value)
			pages++
			found = found || strings.Contains(strings.ToLower(h.Title), query)
		default:
			found = found || strings.Contains(strings.ToLower(string(c.Value)), query)
		}
	}
	flush()
	slices.SortStableFunc(hits, func(a, b hit) int { return b.Rank - a.Rank })
	return hits, pages, nil
}
