package batch

import (
	"context"
	"fmt"
	"iter"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// Source yields the cells of some columns of one table, by row.
type Source func(ctx context.Context, cols ...percolator.Column) iter.Seq2[percolator.Cell, error]

// FromReader returns a Source that reads a snapshot of a database.
func FromReader(r percolator.Reader) Source {
	return func(ctx context.Context, cols ...percolator.Column) iter.Seq2[percolator.Cell, error] {
		return r.Scan(ctx, percolator.Rows(cols[0].Table), cols...)
	}
}

// Read reads the stored index. The result is consistent if the source is a single snapshot.
func Read(ctx context.Context, from Source) (*Index, error) {
	x := newIndex()
	if err := x.readPages(ctx, from); err != nil {
		return nil, fmt.Errorf("batch: read pages: %w", err)
	}
	for _, t := range []struct {
		col percolator.Column
		to  map[string]string
	}{
		{schema.MemberKind(), x.Members},
		{schema.Clusters(schema.Canonical), x.Heads},
		{schema.Anchor(), x.Anchors},
	} {
		for c, err := range from(ctx, t.col) {
			if err != nil {
				return nil, fmt.Errorf("batch: read %s: %w", t.col.Table, err)
			}
			t.to[c.Row] = string(c.Value)
		}
	}
	return x, nil
}

// readPages reads those columns of pages that Compute computes; the other columns are the
// observers' bookkeeping.
func (x *Index) readPages(ctx context.Context, from Source) error {
	cols := []percolator.Column{
		schema.Pages(schema.Title), schema.Pages(schema.Text), schema.Pages(schema.Content),
		schema.Pages(schema.Canon), schema.Pages(schema.Rank), schema.Pages(schema.Doc),
	}
	for c, err := range from(ctx, cols...) {
		if err != nil {
			return err
		}
		url := strings.Clone(c.Row)
		e := x.Pages[url]
		switch c.Column.Name {
		case schema.Title:
			e.Title = Digest(c.Value)
		case schema.Text:
			e.Text = Digest(c.Value)
		case schema.Content:
			e.Content = string(c.Value)
		case schema.Canon:
			x.Ways[url] = string(c.Value)
		case schema.Rank:
			x.Ranks[url] = string(c.Value)
		case schema.Doc:
			x.Docs[url] = string(c.Value)
		}
		if e != (Entry{}) {
			x.Pages[url] = e
		}
	}
	return nil
}
