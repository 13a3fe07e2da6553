package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

// Index is the complete contents of the web index. Keys of more than one part are joined as the
// tables' rows are.
type Index struct {
	Pages   map[string]Entry  // by URL
	Ways    map[string]string // canonical URL of every URL that has another one than itself
	Members map[string]string // "HASH URL" -> "page" or "stub"
	Heads   map[string]string // hash of a cluster of duplicates -> canonical URL
	Anchors map[string]string // "CANONICAL SOURCE TARGET" -> anchor texts, one per line
	Ranks   map[string]string // URL -> rank in thousandths, unless it is schema.BaseRank
	Docs    map[string]string // canonical page with content -> its schema.Document
}

// Entry is the indexed data of one page.
type Entry struct {
	Content string // "page HASH" or "stub TARGET"
	Title   string // Digest
	Text    string // Digest
}

// newIndex returns an empty index.
func newIndex() *Index {
	return &Index{
		Pages: map[string]Entry{}, Ways: map[string]string{}, Members: map[string]string{},
		Heads:   map[string]string{},
		Anchors: map[string]string{}, Ranks: map[string]string{},
		Docs: map[string]string{},
	}
}

// Digest returns a hash of the text, which is too long to keep; "" for an empty text.
func Digest(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// fingerprint returns the digest of the anchors of a document.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// Clusters returns the number of distinct canonical URLs of pages.
func (x *Index) Clusters() int {
	heads := map[string]bool{}
	for url := range x.Pages {
		if canon, other := x.Ways[url]; other {
			url = canon
		}
		heads[url] = true
	}
	return len(heads)
}

// Difference is one wrong entry. "" means an absent entry.
type Difference struct{ What, Key, Want, Have string }

// String formats the difference as one line.
func (d Difference) String() string {
	show := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return "\"" + s + "\""
	}
	return d.What + " " + d.Key + ": want " + show(d.Want) + ", have " + show(d.Have)
}

// Diff compares two indexes. It returns the number of differences and at most limit of them,
// ordered by kind and key.
func Diff(want, have *Index, limit int) (n int, first []Difference) {
	add := func(what string, want, have map[string]string) {
		keys := map[string]bool{}
		for key, value := range want {
			if other, there := have[key]; !there || other != value {
				keys[key] = true
			}
		}
		for key := range have {
			if _, there := want[key]; !there {
				keys[key] = true
			}
		}
		n += len(keys)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if len(first) < limit {
				first = append(first, Difference{what, key, mark(want, key), mark(have, key)})
			}
		}
	}
	add("page", want.entries(), have.entries())
	add("canonical", want.Ways, have.Ways)
	add("member", want.Members, have.Members)
	add("cluster", want.Heads, have.Heads)
	add("anchor", want.Anchors, have.Anchors)
	add("rank", want.Ranks, have.Ranks)
	add("doc", want.Docs, have.Docs)
	return n, first
}

// mark returns the value, "(empty)" if it is empty, or "" if it is absent.
func mark(m map[string]string, key string) string {
	value, there := m[key]
	if there && value == "" {
		return "(empty)"
	}
	return value
}

// entries returns the pages in a form that Diff can compare and print.
func (x *Index) entries() map[string]string {
	m := make(map[string]string, len(x.Pages))
	for url, e := range x.Pages {
		m[url] = e.Content + ", title " + e.Title + ", text " + e.Text
	}
	return m
}
