package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/query"

	"github.com/percolator-go/percolator/examples/webindex/schema"
	"github.com/percolator-go/percolator/examples/webindex/webindex/export"
)

// Bounds of a query.
const (
	maxQuery = 256 // characters
	maxTerms = 16  // words and phrases
)

// Weights of the fields in the text score, and of the rank.
const (
	weightTitle   = 4
	weightAnchors = 2.5
	weightURL     = 1
	weightText    = 1
	rankShare     = 0.25
)

// errQuery reports that the query cannot be parsed or is too long; the text is shown to the user.
var errQuery = errors.New("search: bad query")

// queryError is an errQuery with its reason.
type queryError struct{ reason string }

// Error returns the text of errQuery followed by the reason.
func (e *queryError) Error() string { return errQuery.Error() + ": " + e.reason }

// Unwrap is errQuery.
func (e *queryError) Unwrap() error { return errQuery }

// refuse makes an errQuery. The reason begins with a lowercase ASCII letter and has no full stop.
func refuse(format string, args ...any) error {
	return &queryError{fmt.Sprintf(format, args...)}
}

// term is one word or phrase of a query.
type term struct {
	field string // of the index; "": all
	text  string
	not   bool
}

// fieldNames are the names of fields in queries.
var fieldNames = map[string]string{
	"title": export.FieldTitle, "text": export.FieldText, "anchor": export.FieldAnchors,
	"url": export.FieldURL,
}

// parse reads words and "phrases", each of which a page must have, or, after "-", must
// not have; "title:", "text:", "anchor:" or "url:" before one restricts it to that field.
func parse(text string) ([]term, error) {
	if !utf8.ValidString(text) {
		return nil, refuse("that is no text")
	}
	if n := utf8.RuneCountInString(text); n > maxQuery {
		return nil, refuse("at most %d characters, please: these are %d", maxQuery, n)
	}
	var terms []term
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		var t term
		var err error
		if t, rest, err = next(rest); err != nil {
			return nil, err
		}
		if terms = append(terms, t); len(terms) > maxTerms {
			return nil, refuse("at most %d words, please", maxTerms)
		}
	}
	return terms, nil
}

// next parses the first term of the text, which does not begin with a space.
func next(text string) (t term, rest string, err error) {
	if rest, t.not = strings.CutPrefix(text, "-"); rest == "" || t.not &&
		unicode.IsSpace(rune(rest[0])) {
		return t, "", refuse("a minus sign must be directly followed by a word: -word excludes pages that contain the word")
	}
	if name, value, found := strings.Cut(rest, ":"); found && fieldNames[name] != "" {
		t.field, rest = fieldNames[name], value
		if rest == "" || unicode.IsSpace(rune(rest[0])) {
			return t, "", refuse("a word must directly follow %s: try %s:word, without a space",
				name, name)
		}
	}
	if phrase, quoted := strings.CutPrefix(rest, `"`); quoted {
		end := strings.IndexByte(phrase, '"')
		if end < 0 {
			return t, "", refuse(`a quotation mark has no partner: put one at the end of the phrase`)
		}
		t.text = phrase[:end]
		return t, phrase[end+1:], nil
	}
	end := strings.IndexFunc(rest, unicode.IsSpace)
	if end < 0 {
		end = len(rest)
	}
	t.text = rest[:end]
	return t, rest[end:], nil
}

// build converts the terms to a Bleve query. It omits words that the analyzer omits, such as
// "the".
func build(terms []term, analyzer analysis.Analyzer) (query.Query, error) {
	q := bleve.NewBooleanQuery()
	kind := bleve.NewTermQuery(export.KindPage)
	kind.SetField(export.FieldKind)
	kind.SetBoost(0)
	q.AddMust(kind)
	must, left := 0, ""
	for _, t := range terms {
		n := len(analyzer.Analyze([]byte(t.text)))
		switch {
		case n == 0:
			left = t.text
		case t.not:
			q.AddMustNot(t.query(n))
		default:
			q.AddMust(t.query(n))
			must++
		}
	}
	if must == 0 && left != "" {
		return nil, refuse("there is nothing to look for in %q, which is too common or no word: please add another", left)
	}
	if must == 0 {
		return nil, refuse("please add a word that the pages should have; words with a minus sign only leave pages out")
	}
	return query.NewCustomScoreQueryWithScorer(q, mix, []string{export.FieldRank}, nil), nil
}

// query returns a query for the term, of n analyzed words, in its field or in any field.
func (t term) query(n int) query.Query {
	in := func(field string, weight float64) query.Query {
		if n > 1 {
			q := bleve.NewMatchPhraseQuery(t.text)
			q.SetField(field)
			q.SetBoost(weight)
			return q
		}
		q := bleve.NewMatchQuery(t.text)
		q.SetField(field)
		q.SetBoost(weight)
		return q
	}
	if t.field != "" {
		return in(t.field, 1)
	}
	return bleve.NewDisjunctionQuery(
		in(export.FieldTitle, weightTitle), in(export.FieldAnchors, weightAnchors),
		in(export.FieldURL, weightURL), in(export.FieldText, weightText),
	)
}

// mix returns the score of a result, computed from text and rank; see the package comment.
func mix(_ context.Context, d *search.DocumentMatch) (float64, error) {
	rank, ok := d.Fields[export.FieldRank].(float64)
	if !ok || rank < schema.BaseRank {
		rank = schema.BaseRank
	}
	return d.Score * (1 + rankShare*math.Log(rank/schema.BaseRank)), nil
}
