package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// maxAnchors is the number of a page's distinct anchor texts that are exported, the most frequent
// ones.
const maxAnchors = 200

// Document is a canonical page as stored in the full-text index.
type Document struct {
	URL   string
	Title string
	Text  string
	// distinct texts of the links to it or to its duplicates, the most frequent first
	Anchors []string
	schema.Document
}

// errMoved reports that the page has changed since its doc was written; another version is on
// its way.
var errMoved = errors.New("export: the page is newer than its document")

// read collects a page's document from one snapshot; doc is the value of its cell there. It
// returns errMoved if the page has changed since doc was written.
func read(ctx context.Context, r percolator.Reader, url string,
	doc schema.Document) (Document, error) {
	d := Document{URL: url, Document: doc}
	keys := []percolator.CellKey{
		{Row: url, Column: schema.Pages(schema.Content)},
		{Row: url, Column: schema.Pages(schema.Title)},
		{Row: url, Column: schema.Pages(schema.Text)},
	}
	cells, err := r.GetMulti(ctx, keys...)
	if err != nil {
		return d, err
	}
	content := ""
	for _, c := range cells {
		switch c.Column.Name {
		case schema.Content:
			content = string(c.Value)
		case schema.Title:
			d.Title = string(c.Value)
		case schema.Text:
			d.Text = string(c.Value)
		}
	}
	if content != schema.Row(schema.KindPage, doc.Hash) {
		return d, fmt.Errorf("%w: %s", errMoved, url)
	}
	var texts tally
	var hung schema.Anchorage
	for c, err := range r.Scan(ctx, percolator.Rows(schema.TableAnchors).Prefix(schema.Prefix(url)),
		schema.Anchor()) {
		if err != nil {
			return d, err
		}
		hung.Add(c.Row, c.Value)
		texts.add(c.Value)
	}
	if hung.Digest() != doc.Anchors {
		return d, fmt.Errorf("%w: the anchors of %s", errMoved, url)
	}
	d.Anchors = texts.top()
	return d, nil
}

// tally counts anchor texts.
type tally map[string]int

// add counts the texts of one link.
func (t *tally) add(texts []byte) {
	if *t == nil {
		*t = tally{}
	}
	for _, text := range schema.Lines(texts) {
		if text != "" {
			(*t)[text]++
		}
	}
}

// top returns the most frequent texts, equally frequent ones in lexical order.
func (t tally) top() []string {
	all := slices.SortedFunc(maps.Keys(t), func(a, b string) int {
		return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b))
	})
	return all[:min(len(all), maxAnchors)]
}
