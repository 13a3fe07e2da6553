package index

import (
	"context"

	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// publish runs when anything changed that a search shows of the page: content, rank, canonical
// URL, anchors. The transaction of each such change notifies this row. It always deletes moved
// (rule 1) and writes doc only if that changes, so that an export runs only if there is something
// to export.
//
// It also has the canonical page of the page's cluster elected again after the page's
// rank changed. That it does so by a later transaction than the change is rule 3: a page
// that joins a cluster later than this run can see has it elected with this rank.
func publish(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Content), schema.Pages(schema.Canon),
		schema.Pages(schema.Cluster),
		schema.Pages(schema.Rank), schema.Pages(schema.Doc), schema.Pages(schema.Moved))
	if err != nil {
		return err
	}
	if old.has(url, schema.Pages(schema.Moved)) {
		if err := reelect(ctx, t, string(old.get(url, schema.Pages(schema.Cluster)))); err != nil {
			return err
		}
	}
	t.Delete(url, schema.Pages(schema.Moved))
	doc, err := document(ctx, t, old, url)
	if err != nil {
		return err
	}
	put(t, old, url, schema.Pages(schema.Doc), doc)
	return nil
}

// reelect triggers the election of a cluster's canonical page, given the membership of one of its
// pages. A cluster of one page is skipped: it is elected when the second one joins.
func reelect(ctx context.Context, t Tx, membership string) error {
	if membership == "" {
		return nil
	}
	parts := schema.Parts(membership)
	if parts[1] != schema.KindPage { // the rank of a stub elects nobody
		return nil
	}
	many, err := row(ctx, t, parts[0], schema.Clusters(schema.Many))
	if err == nil && many.has(parts[0], schema.Clusters(schema.Many)) {
		t.Notify(parts[0], schema.Clusters(schema.Elect))
	}
	return err
}

// document returns the page's doc; nil unless it is a canonical page with content.
func document(ctx context.Context, t Tx, old values, url string) ([]byte, error) {
	content := string(old.get(url, schema.Pages(schema.Content)))
	if content == "" || redirect(content) != "" || old.has(url, schema.Pages(schema.Canon)) {
		return nil, nil
	}
	rank, err := schema.RankOf(old.get(url, schema.Pages(schema.Rank)))
	if err != nil {
		return nil, err
	}
	var a schema.Anchorage
	for c, err := range t.Prefix(ctx, schema.Prefix(url), schema.Anchor()) {
		if err != nil {
			return nil, err
		}
		a.Add(c.Row, c.Value)
	}
	return schema.Document{
		Hash: schema.Parts(content)[1], Rank: rank, Linking: a.Sources, Anchors: a.Digest(),
	}.Encode(), nil
}
