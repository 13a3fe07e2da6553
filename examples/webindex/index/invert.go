package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// digest returns a short hash of a value.
func digest(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:12])
}

// hanging is the URL under which a link is stored, with its anchor texts.
type hanging struct{ canon, texts string }

// invert runs when a page's links changed, or the canonical URL of one of their targets. It stores
// every link of the page under that URL and deletes entries of former links. It always writes
// inverted (rule 1), which lists the stored entries.
func invert(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Links), schema.Pages(schema.Inverted),
		schema.Pages(schema.Hung))
	if err != nil {
		return err
	}
	encoded := old.get(url, schema.Pages(schema.Links))
	links := schema.DecodeLinks(encoded)
	canon, err := canonicals(ctx, t, links)
	if err != nil {
		return err
	}
	h := hanger{
		t: t, source: url, was: decodeInverted(old.get(url, schema.Pages(schema.Inverted))),
		published: map[string]bool{},
	}
	for _, l := range links {
		h.hang(l, canon[l.Target])
	}
	h.takeDown()
	write(t, url, schema.Pages(schema.Inverted), schema.EncodeLines(h.lines))
	hung := ""
	if len(encoded) > 0 {
		hung = digest(encoded)
	}
	put(t, old, url, schema.Pages(schema.Hung), []byte(hung))
	return nil
}

// canonicals reads the canonical URLs of the links' targets.
func canonicals(ctx context.Context, t Tx, links []page.Link) (map[string]string, error) {
	keys := make([]percolator.CellKey, len(links))
	canon := make(map[string]string, len(links))
	for i, l := range links {
		keys[i] = percolator.CellKey{Row: l.Target, Column: schema.Pages(schema.Canon)}
		canon[l.Target] = l.Target
	}
	v, err := read(ctx, t, keys)
	if err != nil {
		return nil, err
	}
	for key, value := range v {
		canon[key.Row] = string(value)
	}
	return canon, nil
}

// hanger stores the links of one page.
type hanger struct {
	t         Tx
	source    string
	was       map[string]hanging // by target
	lines     []string           // of inverted
	published map[string]bool    // canonical URLs that publish has notified
}

// hang stores one link under its target's canonical URL. It does not write an entry that exists
// with the same texts.
func (h *hanger) hang(l page.Link, canon string) {
	texts := schema.EncodeAnchors(l.Anchors)
	now := hanging{canon, digest(texts)}
	was, hangs := h.was[l.Target]
	delete(h.was, l.Target)
	if hangs && was.canon != canon {
		h.remove(was.canon, l.Target)
	}
	if !hangs || was != now {
		h.t.Set(schema.Row(canon, h.source, l.Target), schema.Anchor(), texts)
		h.publish(canon)
	}
	h.lines = append(h.lines, schema.Row(l.Target, now.canon, now.texts))
}

// takeDown deletes the previously stored entries that hang has not kept.
func (h *hanger) takeDown() {
	for target, was := range h.was {
		h.remove(was.canon, target)
	}
}

// remove deletes the entry of one link.
func (h *hanger) remove(canon, target string) {
	h.t.Delete(schema.Row(canon, h.source, target), schema.Anchor())
	h.publish(canon)
}

// publish triggers the publication of the canonical page by a weak notification, because many pages
// link to a popular page at once.
func (h *hanger) publish(canon string) {
	if !h.published[canon] {
		h.published[canon] = true
		h.t.Notify(canon, schema.Pages(schema.Publish))
	}
}

// decodeInverted decodes a page's stored entries, by target.
func decodeInverted(value []byte) map[string]hanging {
	hangs := map[string]hanging{}
	for _, line := range schema.Lines(value) {
		parts := schema.Parts(line)
		hangs[parts[0]] = hanging{parts[1], parts[2]}
	}
	return hangs
}
