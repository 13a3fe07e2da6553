package index

import (
	"context"
	"iter"
	"slices"
	"strings"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/examples/webindex/page"
	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// way is the destination of a URL, with the redirects that lead to it.
type way struct {
	path string // the URLs on the way and how it ends; "" for a URL without a page
	hash string // of the page with content at its end, or ""
	end  string // without hash: the canonical URL
}

// follow walks the redirects from url, whose content is given.
func follow(ctx context.Context, t Tx, url, content string) (way, error) {
	if content == "" {
		return way{end: url}, nil
	}
	hops := []string{url}
	for {
		target := redirect(content)
		if target == "" {
			break
		}
		if at := slices.Index(hops, target); at >= 0 {
			return way{path: schema.Row(append(hops, "loop")...), end: slices.Min(hops[at:])}, nil
		}
		if len(hops) > page.MaxRedirects {
			return way{path: schema.Row(append(hops, "long")...), end: url}, nil
		}
		hops = append(hops, target)
		next, err := row(ctx, t, target, schema.Pages(schema.Content))
		if err != nil {
			return way{}, err
		}
		if content = string(next.get(target, schema.Pages(schema.Content))); content == "" {
			return way{path: schema.Row(append(hops, "missing")...), end: target}, nil
		}
	}
	hash := schema.Parts(content)[1]
	return way{path: schema.Row(append(hops, hash)...), hash: hash}, nil
}

// refile runs when the page's content changed: it resolves the page and notifies every page that
// redirects to it to be resolved again.
//
// That can't be left to a comparison of old and new way, hop by hop: the content may have
// changed there and back, and a stub may have been resolved in between. The content was
// committed before this run started, which is late enough for rule 3; stubs that are
// registered from now on see that content themselves.
func refile(ctx context.Context, t Tx, url string) error {
	seen, level := map[string]bool{url: true}, []string{url}
	for depth := 0; depth < page.MaxRedirects && len(level) > 0; depth++ {
		var next []string
		for _, target := range level {
			for stub, err := range second(t.Prefix(ctx, schema.Prefix(target), schema.StubFrom())) {
				if err != nil {
					return err
				}
				if !seen[stub] {
					seen[stub] = true
					next = append(next, stub)
				}
			}
		}
		if err := fan(ctx, t, schema.Pages(schema.Resolve), each(next)); err != nil {
			return err
		}
		level = next
	}
	return resolve(ctx, t, url)
}

// each yields the rows, with nil errors.
func each(rows []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// resolve runs when the content of a page on the page's way changed, or the canonical page of its
// cluster; also as part of refile. It alone writes the data that depends on the page's
// destination, including its membership in a cluster. It always writes path (rule 1).
func resolve(ctx context.Context, t Tx, url string) error {
	old, err := row(ctx, t, url, schema.Pages(schema.Content), schema.Pages(schema.Filed),
		schema.Pages(schema.Cluster),
		schema.Pages(schema.Canon))
	if err != nil {
		return err
	}
	content := string(old.get(url, schema.Pages(schema.Content)))
	w, err := follow(ctx, t, url, content)
	if err != nil {
		return err
	}
	write(t, url, schema.Pages(schema.Path), []byte(w.path))
	put(t, old, url, schema.Pages(schema.Filed), []byte(content))
	membership := ""
	if w.hash != "" {
		kind := schema.KindPage
		if redirect(content) != "" {
			kind = schema.KindStub
		}
		membership = schema.Row(w.hash, kind)
	}
	// A new member is only registered by this run and reads its canonical page by the
	// next one (rule 2), a founder knows it.
	canon := w.end
	if before := string(old.get(url, schema.Pages(schema.Cluster))); before != membership {
		put(t, old, url, schema.Pages(schema.Cluster), []byte(membership))
		leave(t, before, w.hash, url)
		founded, err := join(ctx, t, membership, url)
		if err != nil {
			return err
		}
		if founded {
			canon = url
		}
	} else if w.hash != "" {
		if canon, err = canonical(ctx, t, w.hash); err != nil {
			return err
		}
	}
	if canon == "" {
		// not known yet; the canonical page stays what it was until announce or the next
		// run
		return nil
	}
	if canon == url {
		canon = ""
	}
	if put(t, old, url, schema.Pages(schema.Canon), []byte(canon)) {
		t.Notify(url, schema.Pages(schema.Publish))
	}
	return nil
}

// leave removes the URL from the cluster of the membership before ("HASH kind" or ""), unless next
// joins the same cluster as another kind.
func leave(t Tx, before, next, url string) {
	if before == "" {
		return
	}
	hash := schema.Parts(before)[0]
	if hash != next {
		t.Delete(schema.Row(hash, url), schema.MemberKind())
	}
	t.Notify(hash, schema.Clusters(schema.Elect))
}

// join starts a membership ("HASH kind" or ""). The first page of a cluster founds it and is its
// canonical page; no other page needs a notification (the paper's Figure 2). Later members are
// registered now and read the canonical page in their next run (rule 2); a page, unlike a stub,
// also triggers the election of the canonical one.
func join(ctx context.Context, t Tx, membership, url string) (founded bool, err error) {
	if membership == "" {
		return false, nil
	}
	parts := schema.Parts(membership)
	hash, kind := parts[0], parts[1]
	old, err := row(ctx, t, hash, schema.Clusters(schema.Canonical), schema.Clusters(schema.Many))
	if err != nil {
		return false, err
	}
	if kind == schema.KindPage && !old.has(hash, schema.Clusters(schema.Canonical)) {
		if founded, err = isEmpty(ctx, t, hash); err != nil {
			return false, err
		}
	}
	t.Set(schema.Row(hash, url), schema.MemberKind(), []byte(kind))
	// A page that joins at the same time finds this canonical page in its next run, or writes
	// the cell too and conflicts.
	if founded {
		t.Set(hash, schema.Clusters(schema.Canonical), []byte(url))
		return true, nil
	}
	if kind == schema.KindPage {
		put(t, old, hash, schema.Clusters(schema.Many), []byte{1})
		t.Notify(hash, schema.Clusters(schema.Elect))
	}
	t.Notify(url, schema.Pages(schema.Resolve))
	return false, nil
}

// isEmpty reports whether the cluster has no members.
func isEmpty(ctx context.Context, t Tx, hash string) (bool, error) {
	for _, err := range t.Prefix(ctx, schema.Prefix(hash), schema.MemberKind()) {
		return false, err
	}
	return true, nil
}

// canonical returns the cluster's canonical page, or "" if it is unknown. It writes an empty
// canonical cell if that was just removed, so that a page that considers the cluster new conflicts
// with it.
func canonical(ctx context.Context, t Tx, hash string) (string, error) {
	v, err := row(ctx, t, hash, schema.Clusters(schema.Canonical))
	if err != nil {
		return "", err
	}
	if !v.has(hash, schema.Clusters(schema.Canonical)) {
		t.Set(hash, schema.Clusters(schema.Canonical), nil)
	}
	return string(v.get(hash, schema.Clusters(schema.Canonical))), nil
}

// second yields the second parts of the cells' rows.
func second(cells iter.Seq2[percolator.Cell, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for c, err := range cells {
			url := ""
			if err == nil {
				_, url, _ = strings.Cut(c.Row, " ")
			}
			if !yield(url, err) {
				return
			}
		}
	}
}
