package index

import (
	"context"

	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// elect runs when pages joined or left a cluster, or links to one of its pages came or went. It always writes
// canonical (rule 1), which also makes it conflict with a page that founds the cluster.
func elect(ctx context.Context, t Tx, hash string) error {
	old, err := row(ctx, t, hash, schema.Clusters(schema.Canonical), schema.Clusters(schema.Elected))
	if err != nil {
		return err
	}
	var vote poll
	members := false
	for c, err := range t.Prefix(ctx, schema.Prefix(hash), schema.MemberKind()) {
		if err != nil {
			return err
		}
		members = true
		if string(c.Value) != schema.KindPage {
			continue
		}
		if err := vote.add(ctx, t, schema.Parts(c.Row)[1]); err != nil {
			return err
		}
	}
	if !members {
		// many stays: whether a page that joins right now would set it again can't be seen from here.
		t.Delete(hash, schema.Clusters(schema.Canonical))
		put(t, old, hash, schema.Clusters(schema.Elected), nil)
		return nil
	}
	t.Set(hash, schema.Clusters(schema.Canonical), []byte(vote.best))
	if vote.best != "" && vote.best != string(old.get(hash, schema.Clusters(schema.Canonical))) {
		t.Set(hash, schema.Clusters(schema.Elected), []byte(vote.best)) // the members are looked up later (rule 3)
	}
	return nil
}

// poll finds the most linked of the pages given to it in the order of their URLs. It counts only from the second on:
// most clusters are of one page.
type poll struct {
	best    string
	links   int
	counted bool
}

func (p *poll) add(ctx context.Context, t Tx, url string) error {
	if p.best == "" {
		p.best = url
		return nil
	}
	if !p.counted {
		n, err := linking(ctx, t, p.best)
		if err != nil {
			return err
		}
		p.links, p.counted = n, true
	}
	n, err := linking(ctx, t, url)
	if err != nil {
		return err
	}
	if n > p.links {
		p.best, p.links = url, n
	}
	return nil
}

// linking counts the pages that link to the URL.
func linking(ctx context.Context, t Tx, url string) (n int, err error) {
	for _, err := range t.Prefix(ctx, schema.Prefix(url), schema.LinkFrom()) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// announce runs after elect changed the canonical page and has every member look it up.
func announce(ctx context.Context, t Tx, hash string) error {
	return fan(ctx, t, schema.Pages(schema.Resolve), second(t.Prefix(ctx, schema.Prefix(hash), schema.MemberKind())))
}

// relink runs after a URL's canonical URL changed and has the links of every page that links to it hung anew.
func relink(ctx context.Context, t Tx, url string) error {
	return fan(ctx, t, schema.Pages(schema.Reinvert), second(t.Prefix(ctx, schema.Prefix(url), schema.LinkFrom())))
}
