package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/pipeline/embedder"
	"github.com/percolator-go/percolator/tuple"
)

var errDiffers = errors.New("they differ")

// result counts what verify has compared.
type result struct {
	documents, pieces, tombstones int
}

func (r result) String() string {
	return fmt.Sprintf("%d documents, %d pieces: equal; %d tombstones", r.documents, r.pieces,
		r.tombstones)
}

// verify computes the expected index from the documents alone and compares: exactly the pieces of
// the documents, each with its text and the text's vector.
func (s *services) verify(ctx context.Context, r percolator.Reader) (result, error) {
	var got result
	want := map[string]string{} // text, by ID
	for d, err := range documents.Scan(ctx, r, percolator.Rows(documents.Column.Table)) {
		if err != nil {
			return got, err
		}
		got.documents++
		for i, part := range pieces(d.Value) {
			id, err := idOf(tuple.Pack(d.Row, i))
			if err != nil {
				return got, err
			}
			want[id] = part
		}
	}
	entries, err := s.entries(ctx)
	if err != nil {
		return got, err
	}
	for _, e := range entries {
		part, exists := want[e.ID]
		switch {
		case e.Gone:
			got.tombstones++
			continue
		case !exists:
			return got, fmt.Errorf("%s is in the index, but in no document: %w", e.ID, errDiffers)
		case e.Text != part:
			return got, fmt.Errorf("%s has the text %q in the index, want %q: %w", e.ID, e.Text, part,
				errDiffers)
		case !slices.Equal(e.Vector, embedder.Embed(part)):
			return got, fmt.Errorf("%s has another vector in the index than its text has: %w", e.ID, errDiffers)
		}
		got.pieces++
	}
	if got.pieces != len(want) {
		return got, fmt.Errorf("the index has %d pieces, the documents %d: %w", got.pieces, len(want),
			errDiffers)
	}
	return got, nil
}
