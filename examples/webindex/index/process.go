package index

import (
	"context"
	"errors"
	"slices"

	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// maxTouched bounds the targets that invert has not looked at yet.
const maxTouched = 3 * page.MaxLinks

// errInvertBehind: the page was crawled again many times before its links were inverted once; processing waits.
var errInvertBehind = errors.New("index: invert has not yet seen earlier versions of the page")

// process runs when a page was loaded, changed or removed. It parses the page, registers it where its links and its
// redirect lead (rule 2), and passes on what changed.
func process(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Raw), schema.Pages(schema.Title), schema.Pages(schema.Text),
		schema.Pages(schema.Content), schema.Pages(schema.Links), schema.Pages(schema.Touched))
	if err != nil {
		return err
	}
	var p page.Page
	content := ""
	if raw := schema.Pages(schema.Raw); old.has(url, raw) {
		p = page.Parse(url, old.get(url, raw))
		content = schema.Row(schema.KindPage, p.Hash)
		if p.Redirect != "" {
			content = schema.Row(schema.KindStub, p.Redirect)
		}
	}
	// Only what changed is written, so that only what depends on it runs. Nobody else writes these cells (rule 1).
	put(t, old, url, schema.Pages(schema.Title), []byte(p.Title))
	put(t, old, url, schema.Pages(schema.Text), []byte(p.Text))

	before := redirect(string(old.get(url, schema.Pages(schema.Content))))
	if before != p.Redirect {
		move(t, before, p.Redirect, url)
	}
	if put(t, old, url, schema.Pages(schema.Content), []byte(content)) {
		t.Notify(url, schema.Pages(schema.Refile))
	}
	return relabel(t, old, url, p.Links)
}

// redirect is the target of a stub's content, or "".
func redirect(content string) string {
	if kind := schema.Parts(content); len(kind) == 2 && kind[0] == schema.KindStub {
		return kind[1]
	}
	return ""
}

// move changes the stub's entry among those that redirect to a URL.
func move(t Tx, from, to, stub string) {
	if from != "" {
		t.Delete(schema.Row(from, stub), schema.StubFrom())
	}
	if to != "" {
		t.Set(schema.Row(to, stub), schema.StubFrom(), []byte{1})
	}
}

// relabel stores the page's links and its entries among those that link to a URL. What came and went is kept in touched
// until invert has passed it on: process may run several times before invert runs once.
func relabel(t Tx, old values, url string, links []page.Link) error {
	if !put(t, old, url, schema.Pages(schema.Links), schema.EncodeLinks(links)) {
		return nil
	}
	now, touched := map[string]bool{}, map[string]bool{}
	for _, target := range schema.Lines(old.get(url, schema.Pages(schema.Touched))) {
		touched[target] = true
	}
	for _, l := range links {
		now[l.Target] = true
	}
	was := map[string]bool{}
	for _, l := range schema.DecodeLinks(old.get(url, schema.Pages(schema.Links))) {
		was[l.Target] = true
		if !now[l.Target] {
			t.Delete(schema.Row(l.Target, url), schema.LinkFrom())
			touched[l.Target] = true
		}
	}
	for target := range now {
		if !was[target] {
			t.Set(schema.Row(target, url), schema.LinkFrom(), []byte{1})
			touched[target] = true
		}
	}
	if len(touched) > maxTouched {
		return errInvertBehind
	}
	if len(touched) > 0 { // written also if it stays the same: a concurrent invert removes it, and must not
		write(t, url, schema.Pages(schema.Touched), schema.EncodeLines(sorted(touched)))
	}
	return nil
}

// sorted are the members of a set in order, so that equal sets have equal encodings.
func sorted(set map[string]bool) []string {
	items := make([]string, 0, len(set))
	for item := range set {
		items = append(items, item)
	}
	slices.Sort(items)
	return items
}
