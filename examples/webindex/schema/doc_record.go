package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// Document is the value of the column doc: the version of a canonical page's entry in a full-text
// index. Equal values mean equal title, text, anchors and rank, so a version that was exported
// need not be exported again.
type Document struct {
	// of the page's bytes, and so of title and text; also the row of its cluster, and the
	// prefix of its members
	Hash    string
	Rank    int    // see Rank
	Linking int    // pages that link to the page or to a duplicate of it
	Anchors string // digest of the anchor texts that hang on the page
}

// Encode returns the cell's value.
func (d Document) Encode() []byte {
	return []byte(Row(d.Hash, strconv.Itoa(d.Rank), strconv.Itoa(d.Linking), d.Anchors))
}

// DecodeDocument undoes Encode.
func DecodeDocument(value []byte) (Document, error) {
	parts := Parts(string(value))
	if len(parts) != 4 {
		return Document{}, fmt.Errorf("schema: a document of %d parts: %q", len(parts), value)
	}
	rank, err := strconv.Atoi(parts[1])
	if err != nil {
		return Document{}, fmt.Errorf("schema: rank of a document: %w", err)
	}
	linking, err := strconv.Atoi(parts[2])
	if err != nil {
		return Document{}, fmt.Errorf("schema: links of a document: %w", err)
	}
	return Document{Hash: parts[0], Rank: rank, Linking: linking, Anchors: parts[3]}, nil
}

// RankOf decodes the value of a cell of the column rank, in thousandths. An absent cell has
// BaseRank.
func RankOf(value []byte) (int, error) {
	if len(value) == 0 {
		return BaseRank, nil
	}
	rank, err := strconv.Atoi(strings.TrimSpace(string(value)))
	if err != nil {
		return 0, fmt.Errorf("schema: rank: %w", err)
	}
	return rank, nil
}

// What rank is computed with; see the package's comment.
const (
	Rounds   = 6   // links over which rank is passed on at most
	Digits   = 4   // leading binary digits that are kept of a rank and of a share
	BaseRank = 500 // rank, in thousandths, of a URL that no page links to; its cell is absent
)
