package export

import (
	"fmt"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/custom"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	"github.com/blevesearch/bleve/v2/analysis/token/porter"
	"github.com/blevesearch/bleve/v2/analysis/tokenizer/regexp"
	"github.com/blevesearch/bleve/v2/mapping"
)

// The fields of an entry.
const (
	FieldKind    = "kind"    // KindPage or kindGone
	FieldTitle   = "title"   // text
	FieldText    = "text"    // text
	FieldAnchors = "anchors" // text, one entry per distinct anchor text
	FieldURL     = "url"     // text: the words of the URL
	FieldRank    = "rank"    // number: schema.Document.Rank
	fieldDoc     = "doc"     // stored only: schema.Document, encoded
	fieldVersion = "version" // stored only: commit timestamp, decimal
)

// The kinds of entries.
const (
	KindPage = "page"
	kindGone = "gone" // a tombstone
)

// Analyzer is the name of the analyzer of the text fields: words of letters, digits and
// underscores, without English stop words, stemmed.
const Analyzer = "page"

// format must change whenever entries are made differently: an index of another format is refilled.
const format = "1"

// newMapping returns the mapping that determines how entries are indexed.
func newMapping() (mapping.IndexMapping, error) {
	m := bleve.NewIndexMapping()
	// Not the Unicode tokenizer, for which strings.Builder is one word.
	if err := m.AddCustomTokenizer("words", map[string]any{
		"type": regexp.Name, "regexp": `[\p{L}\p{N}_]+`,
	}); err != nil {
		return nil, fmt.Errorf("export: tokenizer: %w", err)
	}
	if err := m.AddCustomAnalyzer(Analyzer, map[string]any{
		"type": custom.Name, "tokenizer": "words",
		"token_filters": []string{lowercase.Name, en.StopName, porter.Name},
	}); err != nil {
		return nil, fmt.Errorf("export: analyzer: %w", err)
	}
	doc := bleve.NewDocumentStaticMapping()
	text := bleve.NewTextFieldMapping()
	text.Analyzer, text.IncludeInAll, text.DocValues = Analyzer, false, false
	for _, field := range []string{FieldTitle, FieldText, FieldAnchors, FieldURL} {
		doc.AddFieldMappingsAt(field, text)
	}
	kind := bleve.NewKeywordFieldMapping()
	kind.Analyzer, kind.IncludeInAll, kind.DocValues, kind.IncludeTermVectors = keyword.Name, false,
		false, false
	doc.AddFieldMappingsAt(FieldKind, kind)
	rank := bleve.NewNumericFieldMapping()
	rank.IncludeInAll = false
	doc.AddFieldMappingsAt(FieldRank, rank)
	for _, field := range []string{fieldDoc, fieldVersion} {
		stored := bleve.NewKeywordFieldMapping()
		stored.Index, stored.IncludeInAll, stored.DocValues, stored.IncludeTermVectors = false,
			false, false, false
		doc.AddFieldMappingsAt(field, stored)
	}
	m.DefaultMapping, m.DefaultAnalyzer = doc, Analyzer
	return m, nil
}
