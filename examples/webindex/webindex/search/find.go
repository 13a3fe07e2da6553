package search

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/search"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

// Bounds of a page of results.
const (
	perPage     = 10
	maxPages    = 50 // that can be paged to
	showAnchors = 6
	showCopies  = 5
	maxShown    = 120 // characters of an anchor text
)

// Result is one page that was found.
type Result struct {
	Title   []Segment
	Snippet []Segment
	Page    Place
	Anchors []string // what others call it, the most frequent first
	Others  int      // anchor texts that are not shown
	Rank    string   // 1.00 is about the average
	Linking int      // pages that link to it
	Copies  []Copy   // duplicates and redirects to it
	More    bool     // there are further copies
}

// Place is a URL, and whether the page may link to it.
type Place struct {
	URL  string
	Link bool
}

// Copy is another URL with the same content.
type Copy struct {
	Place
	Redirect bool
}

// place returns the URL. It may be linked only if its scheme is http or https, since a crawl may
// contain others.
func place(text string) Place {
	u, err := url.Parse(text)
	return Place{text, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""}
}

// found is one page of results.
type found struct {
	total   uint64
	results []Result
}

// find runs a query. An error that wraps errQuery is shown to the user.
func (s *Server) find(ctx context.Context, terms []term, number int) (found, error) {
	index := s.cfg.Index.Bleve()
	q, err := build(terms, index.Mapping().AnalyzerNamed(export.Analyzer))
	if err != nil {
		return found{}, err
	}
	req := bleve.NewSearchRequestOptions(q, perPage, (number-1)*perPage, false)
	req.IncludeLocations = true
	req.SortBy([]string{"-_score", "_id"})
	hits, err := index.SearchInContext(ctx, req)
	if err != nil {
		return found{}, fmt.Errorf("search: %w", err)
	}
	f := found{total: hits.Total}
	if len(hits.Hits) == 0 {
		return f, nil
	}
	snapshot, err := s.cfg.DB.Snapshot(ctx)
	if err != nil {
		return found{}, err
	}
	defer func() { _ = snapshot.Close() }() // only a lease, which ends by itself
	for _, hit := range hits.Hits {
		d, ok, err := s.cfg.Index.Lookup(hit.ID)
		if err != nil {
			return found{}, err
		}
		if !ok { // deleted since the search
			continue
		}
		r := result(d, hit)
		if err := r.addCopies(ctx, snapshot, d); err != nil {
			return found{}, err
		}
		f.results = append(f.results, r)
	}
	return f, nil
}

// result converts a document for display.
func result(d export.Document, hit *search.DocumentMatch) Result {
	r := Result{
		Title:   title(d.Title, d.URL, hit.Locations[export.FieldTitle]),
		Snippet: snippet(d.Text, hit.Locations[export.FieldText]),
		Page:    place(d.URL), Rank: fmt.Sprintf("%.2f", float64(d.Rank)/1000), Linking: d.Linking,
	}
	for _, text := range d.Anchors {
		if len(r.Anchors) == showAnchors {
			break
		}
		r.Anchors = append(r.Anchors, shorten(text))
	}
	r.Others = len(d.Anchors) - len(r.Anchors)
	return r
}

// shorten truncates a text that is too long for a list.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return text
}

// addCopies reads the members of the page's cluster.
func (r *Result) addCopies(ctx context.Context, from percolator.Reader, d export.Document) error {
	rows := percolator.Rows(schema.TableMembers).Prefix(schema.Prefix(d.Hash)).Limit(showCopies + 2)
	for c, err := range from.Scan(ctx, rows, schema.MemberKind()) {
		if err != nil {
			return err
		}
		_, member, _ := strings.Cut(c.Row, " ")
		switch {
		case member == d.URL:
		case len(r.Copies) == showCopies:
			r.More = true
		default:
			r.Copies = append(r.Copies, Copy{place(member), string(c.Value) == schema.KindStub})
		}
	}
	return nil
}
