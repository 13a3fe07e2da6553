package page

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of one page, in bytes unless said otherwise.
const (
	MaxSize = 2 << 20 // a larger file is not a page
	MaxText = 1 << 20 // title and text are cut, each
	// a link to a longer URL is omitted; a file with a longer one is not a page
	MaxURL         = 1000
	MaxLinks       = 1000 // distinct targets; the first in the document are kept
	MaxAnchors     = 8    // anchor texts per target; the first in the document are kept
	MaxAnchor      = 160  // one anchor text; longer ones are cut
	MaxRedirects   = 16   // hops over which a redirect is followed
	redirectMarker = "refresh"
)

// Page is the content of one HTML page.
type Page struct {
	// Redirect is the target URL of a redirect stub (<meta http-equiv="refresh">), or "". A stub
	// has no links.
	Redirect string
	// Hash is the SHA-256 of the page's bytes, in hex.
	Hash  string
	Title string
	// Text is the body's text, white space collapsed.
	Text string
	// Links is ordered by the first occurrence of the target. It omits links to the page itself.
	Links []Link
}

// Link is a target with all links of the page to it.
type Link struct {
	Target  string   // in normal form
	Anchors []string // texts of the anchors, in document order; may be empty strings
}

// Hash returns the SHA-256 of a page's bytes, in hex.
func Hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Parse parses the page with the URL self, which must be normalized.
func Parse(self string, raw []byte) Page {
	p := Page{Hash: Hash(raw)}
	base, err := url.Parse(self)
	if err != nil {
		return p
	}
	// Parse fails only if its reader does, or beyond a nesting depth that no browser
	// renders: then there is no text.
	root, err := html.Parse(strings.NewReader(string(raw)))
	if err != nil {
		return p
	}
	r := reader{self: self, base: base, targets: map[string]int{}}
	r.walk(root)
	p.Title, p.Text = collapse(r.title.String()), collapse(r.text.String())
	p.Redirect = r.redirect
	if p.Redirect == "" {
		p.Links = r.links
	}
	return p
}

// reader collects one page's parts in document order.
type reader struct {
	self        string
	base        *url.URL
	title, text strings.Builder
	redirect    string
	links       []Link
	targets     map[string]int // target -> index in links
}

// walk visits the nodes in document order. It is not recursive, because the page determines the
// depth.
func (r *reader) walk(root *html.Node) {
	for n := root; n != nil; {
		if r.visit(n) && n.FirstChild != nil {
			n = n.FirstChild
			continue
		}
		for n != root && n.NextSibling == nil {
			n = n.Parent
		}
		if n == root {
			return
		}
		n = n.NextSibling
	}
}

// visit processes one node and reports whether to visit its children.
func (r *reader) visit(n *html.Node) bool {
	if n.Type == html.TextNode {
		r.add(&r.text, n.Data)
		return false
	}
	if n.Type != html.ElementNode {
		return true
	}
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Template, atom.Noscript:
		return false
	case atom.Title:
		if r.title.Len() == 0 {
			r.add(&r.title, innerText(n))
		}
		return false
	case atom.Base:
		if u, err := r.base.Parse(attr(n, "href")); err == nil {
			r.base = u
		}
	case atom.Meta:
		r.refresh(n)
	case atom.A:
		r.link(n)
	}
	return true
}

// add appends text, one space between pieces, up to MaxText.
func (r *reader) add(to *strings.Builder, text string) {
	room := MaxText - to.Len()
	if room <= 0 {
		return
	}
	to.WriteString(cut(text, room))
	to.WriteByte(' ')
}

// refresh records the first redirect: content="0; url=TARGET".
func (r *reader) refresh(n *html.Node) {
	if r.redirect != "" || !strings.EqualFold(attr(n, "http-equiv"), redirectMarker) {
		return
	}
	_, rest, found := strings.Cut(attr(n, "content"), ";")
	if !found {
		return // a page that reloads itself
	}
	name, target, found := strings.Cut(rest, "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "url") {
		return
	}
	if u, ok := resolve(r.base, strings.Trim(strings.TrimSpace(target), `"'`)); ok {
		r.redirect = u
	}
}

// link records one anchor. Anchors beyond the limits are dropped.
func (r *reader) link(n *html.Node) {
	href, there := lookup(n, "href")
	if !there {
		return
	}
	target, ok := resolve(r.base, href)
	if !ok || target == r.self {
		return
	}
	i, known := r.targets[target]
	if !known {
		if len(r.links) == MaxLinks {
			return
		}
		i = len(r.links)
		r.targets[target] = i
		r.links = append(r.links, Link{Target: target})
	}
	if l := &r.links[i]; len(l.Anchors) < MaxAnchors {
		l.Anchors = append(l.Anchors, cut(collapse(innerText(n)), MaxAnchor))
	}
}

// innerText returns the text below the node, truncated to MaxText.
func innerText(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && b.Len() < MaxText {
			b.WriteString(cut(d.Data, MaxText-b.Len()))
		}
	}
	return b.String()
}

// attr returns the attribute's value, or "" if there is none.
func attr(n *html.Node, name string) string {
	value, _ := lookup(n, name)
	return value
}

func lookup(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// collapse replaces each run of white space by one space and trims both ends.
func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// cut returns at most limit bytes of the text, without a partial character, as valid UTF-8.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
