package batch

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/percolator-go/percolator/examples/webindex/page"
)

// Files computes the index of the HTML files below dir: of the first limit pages in the order of
// URLs, or of all pages if limit is 0.
func Files(dir string, limit int) (*Index, error) {
	files, _, err := page.Tree(dir)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	if limit > 0 && limit < len(files) {
		files = files[:limit]
	}
	return Compute(func(yield func(Raw, error) bool) {
		for _, f := range files {
			raw, err := f.Read()
			if !yield(Raw{f.URL, raw}, err) {
				return
			}
		}
	})
}

// Raw is a page before parsing.
type Raw struct {
	URL  string // in normal form
	HTML []byte
}

// Compute computes the index of the pages. Their order does not matter; their URLs must be
// distinct.
func Compute(all iter.Seq2[Raw, error]) (*Index, error) {
	c := computation{out: newIndex(), pages: map[string]page.Page{}}
	for raw, err := range all {
		if err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
		c.add(raw.URL, page.Parse(raw.URL, raw.HTML))
	}
	c.rank()
	c.cluster()
	c.invert()
	c.document()
	return c.out, nil
}

// computation processes the pages in several passes: pages alone, ranks, clusters, links,
// documents.
type computation struct {
	out   *Index
	pages map[string]page.Page // without their texts
	ranks map[string]int       // in thousandths; of every page and every target
}

// add processes the contents of one page.
func (c *computation) add(url string, p page.Page) {
	content := "page " + p.Hash
	if p.Redirect != "" {
		content = "stub " + p.Redirect
	}
	c.out.Pages[url] = Entry{
		Content: content, Title: Digest([]byte(p.Title)), Text: Digest([]byte(p.Text)),
	}
	p.Title, p.Text = "", "" // only their digests are compared
	c.pages[url] = p
}

// destination follows the redirects from url. It returns the first URL without a redirect or, with
// loop set, the least URL of a loop. ok is false if the chain of redirects is too long.
func (c *computation) destination(url string) (end string, loop, ok bool) {
	trail := []string{url}
	for at := url; ; {
		next := c.pages[at].Redirect
		if next == "" {
			return at, false, true
		}
		if from := slices.Index(trail, next); from >= 0 {
			return slices.Min(trail[from:]), true, true
		}
		if len(trail) == page.MaxRedirects+1 {
			return url, false, false
		}
		trail = append(trail, next)
		at = next
	}
}

// cluster groups pages by content, assigns each stub to the group of its destination, and chooses
// the canonical page of every group.
func (c *computation) cluster() {
	groups := map[string][]string{} // hash -> pages with that content
	for url, p := range c.pages {
		if p.Redirect == "" {
			groups[p.Hash] = append(groups[p.Hash], url)
		}
	}
	for hash, members := range groups {
		head := slices.MinFunc(members, func(a, b string) int {
			return cmp.Or(cmp.Compare(c.ranks[b], c.ranks[a]), cmp.Compare(a, b))
		})
		c.out.Heads[hash] = head
		for _, url := range members {
			c.out.Members[hash+" "+url] = "page"
			c.way(url, head)
		}
	}
	for url, p := range c.pages {
		if p.Redirect == "" {
			continue
		}
		end, loop, ok := c.destination(url)
		target, exists := c.pages[end]
		if !ok || loop || !exists {
			c.way(url, end)
			continue
		}
		c.out.Members[target.Hash+" "+url] = "stub"
		c.way(url, c.out.Heads[target.Hash])
	}
}

// way records the canonical URL of a URL if the two differ.
func (c *computation) way(url, canon string) {
	if url != canon {
		c.out.Ways[url] = canon
	}
}

// invert records every link under the canonical URL of its target.
func (c *computation) invert() {
	for source, p := range c.pages {
		for _, l := range p.Links {
			canon, other := c.out.Ways[l.Target]
			if !other {
				canon = l.Target
			}
			c.out.Anchors[canon+" "+source+" "+l.Target] = strings.Join(l.Anchors, "\n")
		}
	}
}
