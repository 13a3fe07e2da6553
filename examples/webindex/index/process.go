package index

import (
	"context"
	"strconv"

	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// process runs when a page was loaded, changed or removed. It parses the page, registers it at the
// targets of its links and of its redirect (rule 2), and notifies the observers of what changed.
func process(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Raw), schema.Pages(schema.Title),
		schema.Pages(schema.Text),
		schema.Pages(schema.Content), schema.Pages(schema.Links), schema.Pages(schema.Out),
		schema.Pages(schema.Share))
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
	// Only what changed is written, so that only what depends on it runs. Nobody else
	// writes these cells (rule 1).
	put(t, old, url, schema.Pages(schema.Title), []byte(p.Title))
	put(t, old, url, schema.Pages(schema.Text), []byte(p.Text))

	before := redirect(string(old.get(url, schema.Pages(schema.Content))))
	if before != p.Redirect {
		move(t, before, p.Redirect, url)
	}
	if put(t, old, url, schema.Pages(schema.Content), []byte(content)) {
		t.Notify(url, schema.Pages(schema.Refile))
		t.Notify(url, schema.Pages(schema.Publish))
	}
	relabel(t, old, url, p.Links)
	return nil
}

// redirect returns the target of a stub, given its content, or "" if the page is not a stub.
func redirect(content string) string {
	if kind := schema.Parts(content); len(kind) == 2 && kind[0] == schema.KindStub {
		return kind[1]
	}
	return ""
}

// move replaces the stub's entry under the target from, in the table stubs, by one under to. "" is
// no target.
func move(t Tx, from, to, stub string) {
	if from != "" {
		t.Delete(schema.Row(from, stub), schema.StubFrom())
	}
	if to != "" {
		t.Set(schema.Row(to, stub), schema.StubFrom(), []byte{1})
	}
}

// relabel stores the page's links and its entries among the pages that link to a URL. It triggers
// the rank of every added or removed target and, if their number changed, of the page itself: then
// the share of all targets changes.
func relabel(t Tx, old values, url string, links []page.Link) {
	if !put(t, old, url, schema.Pages(schema.Links), schema.EncodeLinks(links)) {
		return
	}
	now, was, same := map[string]bool{}, map[string]bool{}, true
	for _, l := range links {
		now[l.Target] = true
	}
	for _, l := range schema.DecodeLinks(old.get(url, schema.Pages(schema.Links))) {
		was[l.Target] = true
		if !now[l.Target] {
			same = false
			t.Delete(schema.Row(l.Target, url), schema.LinkFrom())
			t.Notify(l.Target, schema.Pages(schema.Rerank))
		}
	}
	for target := range now {
		if !was[target] {
			same = false
			t.Set(schema.Row(target, url), schema.LinkFrom(), []byte{1})
			t.Notify(target, schema.Pages(schema.Rerank))
		}
	}
	// without targets before there is no share that could be changing now
	if !same && len(was) > 0 {
		// see rank
		write(t, url, schema.Pages(schema.Share), old.get(url, schema.Pages(schema.Share)))
	}
	out := ""
	if len(links) > 0 {
		out = strconv.Itoa(len(links))
	}
	if put(t, old, url, schema.Pages(schema.Out), []byte(out)) {
		t.Notify(url, schema.Pages(schema.Rerank))
	}
}
