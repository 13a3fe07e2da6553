package search

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/search"
)

// Sizes of a snippet, in bytes.
const (
	snippetSize = 280
	snippetLead = 60 // how much of it goes before the first word that was found
	wordSearch  = 24 // how far to look for the end of a word
	maxTitle    = 200
)

// Segment is a piece of text, and whether it matches a word of the query.
type Segment struct {
	Text  string
	Match bool
}

// span is the position of a match, in bytes.
type span struct {
	from, to int
	term     string
}

// spans returns the matches in one field in ascending order, without overlaps, within a text of
// the size.
func spans(found search.TermLocationMap, size int) []span {
	var all []span
	for term, locations := range found {
		for _, l := range locations {
			if l.Start < l.End && l.End <= uint64(size) {
				all = append(all, span{int(l.Start), int(l.End), term})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	end := 0
	return slices.DeleteFunc(all, func(s span) bool {
		if s.from < end {
			return true
		}
		end = s.to
		return false
	})
}

// snippet returns the part of the text with the most distinct matches and, of equal ones, the most
// matches.
func snippet(text string, found search.TermLocationMap) []Segment {
	at := spans(found, len(text))
	from := 0
	if best := densest(at); best >= 0 {
		from = max(0, at[best].from-snippetLead)
	}
	to := min(len(text), from+snippetSize)
	from = max(0, to-snippetSize)
	from, to = edges(text, from, to)
	out := mark(text, from, to, at)
	if from > 0 {
		out = append([]Segment{{Text: "… "}}, out...)
	}
	if to < len(text) {
		out = append(out, Segment{Text: " …"})
	}
	return out
}

// densest returns the index of the span at which the best window begins: the one with the most
// distinct matches and, of equal ones, the most matches. It returns -1 if there are no spans.
func densest(at []span) int {
	best, bestTerms, bestCount := -1, 0, 0
	for i := range at {
		terms, count := map[string]bool{}, 0
		for _, s := range at[i:] {
			if s.to > at[i].from+snippetSize-snippetLead {
				break
			}
			terms[s.term] = true
			count++
		}
		if len(terms) > bestTerms || len(terms) == bestTerms && count > bestCount {
			best, bestTerms, bestCount = i, len(terms), count
		}
	}
	return best
}

// edges shrinks the range to the nearest word boundaries, or at least to character boundaries.
func edges(text string, from, to int) (int, int) {
	for from > 0 && from < to && !utf8.RuneStart(text[from]) {
		from++
	}
	for to < len(text) && to > from && !utf8.RuneStart(text[to]) {
		to--
	}
	if from > 0 {
		if i := strings.IndexFunc(text[from:min(to, from+wordSearch)], unicode.IsSpace); i >= 0 {
			from += i + 1
		}
	}
	if to < len(text) {
		if i := strings.LastIndexFunc(text[max(from, to-wordSearch):to], unicode.IsSpace); i >= 0 {
			to = max(from, to-wordSearch) + i
		}
	}
	return from, max(from, to)
}

// mark splits the text between from and to into segments at the spans.
func mark(text string, from, to int, at []span) []Segment {
	var out []Segment
	for _, s := range at {
		if s.from < from || s.to > to {
			continue
		}
		if s.from > from {
			out = append(out, Segment{Text: text[from:s.from]})
		}
		out = append(out, Segment{Text: text[s.from:s.to], Match: true})
		from = s.to
	}
	if from < to {
		out = append(out, Segment{Text: text[from:to]})
	}
	return out
}

// title returns the title with its matches marked, truncated to fit the page, or the URL if there
// is no title.
func title(text, url string, found search.TermLocationMap) []Segment {
	if strings.TrimSpace(text) == "" {
		text, found = url, nil
	}
	if len(text) <= maxTitle {
		return mark(text, 0, len(text), spans(found, len(text)))
	}
	_, to := edges(text, 0, maxTitle)
	return append(mark(text, 0, to, spans(found, len(text))), Segment{Text: " …"})
}
