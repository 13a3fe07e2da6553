package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// Result is the outcome of a comparison.
type Result struct {
	Documents   int // in the repository
	Differences int
	First       []string // the first differences, one line each
}

// String returns the counts, then one line per difference.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verify: %d documents of the repository compared with the full-text index: %d differences",
		r.Documents, r.Differences)
	for _, line := range r.First {
		b.WriteString("\n  " + line)
	}
	if more := r.Differences - len(r.First); more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String()
}

// Verify compares the index with the database as of a snapshot: it must contain exactly the
// canonical pages with content, each with that content. It reads the pages rather than doc, and so
// checks doc too. The database must be idle: concurrent changes appear as differences. It
// describes at most show differences.
func (x *Index) Verify(ctx context.Context, r percolator.Reader, show int) (Result, error) {
	v := verifier{index: x, show: show, hung: map[string]*tally{}}
	for c, err := range r.Scan(ctx, percolator.Rows(schema.TableAnchors), schema.Anchor()) {
		if err != nil {
			return v.Result, err
		}
		canon := strings.Clone(schema.Parts(c.Row)[0])
		if v.hung[canon] == nil {
			v.hung[canon] = &tally{}
		}
		v.hung[canon].add(c.Value)
	}
	var p found
	for c, err := range r.Scan(ctx, percolator.Rows(schema.TablePages),
		schema.Pages(schema.Content),
		schema.Pages(schema.Canon), schema.Pages(schema.Title), schema.Pages(schema.Text),
		schema.Pages(schema.Rank)) {
		if err != nil {
			return v.Result, err
		}
		if c.Row != p.url {
			if err := v.compare(p); err != nil {
				return v.Result, err
			}
			p = found{url: c.Row}
		}
		p.take(c)
	}
	if err := v.compare(p); err != nil {
		return v.Result, err
	}
	n, err := x.Count(ctx)
	if err != nil {
		return v.Result, err
	}
	if int(n) != v.matched {
		v.differ("the index has %d documents, %d of them belong to canonical pages", n, v.matched)
	}
	return v.Result, nil
}

// found is one row of pages.
type found struct {
	url, content, canon, title, text, rank string
}

func (p *found) take(c percolator.Cell) {
	for name, to := range map[string]*string{
		schema.Content: &p.content, schema.Canon: &p.canon, schema.Title: &p.title,
		schema.Text: &p.text, schema.Rank: &p.rank,
	} {
		if c.Column.Name == name {
			*to = string(c.Value)
		}
	}
}

// verifier compares one page at a time.
type verifier struct {
	Result
	index   *Index
	show    int
	hung    map[string]*tally // anchor texts by canonical URL
	matched int               // documents of canonical pages
}

func (v *verifier) differ(format string, args ...any) {
	v.Differences++
	if len(v.First) < v.show {
		v.First = append(v.First, fmt.Sprintf(format, args...))
	}
}

// compare compares the page with its index entry. A stub, or a page that is not canonical, must
// have none.
func (v *verifier) compare(p found) error {
	hash, isPage := strings.CutPrefix(p.content, schema.Prefix(schema.KindPage))
	if !isPage || p.canon != "" {
		return nil // an entry that it has nevertheless shows in the number of documents
	}
	v.Documents++
	have, ok, err := v.index.Lookup(p.url)
	if err != nil {
		return err
	}
	if !ok {
		v.differ("%s: not in the index", p.url)
		return nil
	}
	v.matched++
	rank, err := schema.RankOf([]byte(p.rank))
	if err != nil {
		return err
	}
	var anchors []string
	if t := v.hung[p.url]; t != nil {
		anchors = t.top()
	}
	switch {
	case have.Hash != hash:
		v.differ("%s: content hash is %s, want %s", p.url, have.Hash, hash)
	case have.Title != p.title:
		v.differ("%s: title is %q, want %q", p.url, have.Title, p.title)
	case have.Text != p.text:
		v.differ("%s: another text: %d bytes, want %d", p.url, len(have.Text), len(p.text))
	case have.Rank != rank:
		v.differ("%s: rank is %d, want %d", p.url, have.Rank, rank)
	case !slices.Equal(have.Anchors, anchors):
		v.differ("%s: anchors are %q, want %q", p.url, have.Anchors, anchors)
	}
	return nil
}
