package index

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/percolator-go/percolator/examples/webindex/schema"
)

// elect runs when pages joined or left a cluster, or the rank of one of its pages changed. It
// writes canonical even if that does not change (rule 1), so that it conflicts with the
// transaction of a page that creates the cluster.
func elect(ctx context.Context, t Tx, hash string) error {
	old, err := row(ctx, t, hash, schema.Clusters(schema.Canonical),
		schema.Clusters(schema.Elected))
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
		vote.pages = append(vote.pages, schema.Parts(c.Row)[1])
	}
	if !members {
		// many stays: whether a page that joins right now would set it again can't be
		// seen from here.
		t.Delete(hash, schema.Clusters(schema.Canonical))
		put(t, old, hash, schema.Clusters(schema.Elected), nil)
		return nil
	}
	best, err := vote.best(ctx, t)
	if err != nil {
		return err
	}
	t.Set(hash, schema.Clusters(schema.Canonical), []byte(best))
	if best != "" && best != string(old.get(hash, schema.Clusters(schema.Canonical))) {
		// announce looks up the members later (rule 3)
		t.Set(hash, schema.Clusters(schema.Elected), []byte(best))
	}
	return nil
}

// poll has the pages of a cluster. best returns the one with the highest rank; of equal ranks, the
// one with the least URL.
type poll struct{ pages []string }

func (p *poll) best(ctx context.Context, t Tx) (best string, err error) {
	if len(p.pages) < 2 {
		return strings.Join(p.pages, ""), nil
	}
	slices.Sort(p.pages)
	ranks := make(map[string]int, len(p.pages))
	err = lookup(ctx, t, each(p.pages), schema.Pages(schema.Rank),
		func(url string, value []byte) (err error) {
			ranks[url], err = schema.RankOf(value)
			return err
		})
	if err != nil {
		return "", err
	}
	best = p.pages[0]
	for _, url := range p.pages[1:] {
		if cmp.Or(ranks[url], schema.BaseRank) > cmp.Or(ranks[best], schema.BaseRank) {
			best = url
		}
	}
	return best, nil
}

// announce runs after elect has changed the canonical page, and notifies every member to read it.
func announce(ctx context.Context, t Tx, hash string) error {
	return fan(ctx, t, schema.Pages(schema.Resolve),
		second(t.Prefix(ctx, schema.Prefix(hash), schema.MemberKind())))
}

// relink runs after a URL's canonical URL changed, and notifies every page that links to it to
// store its links again.
func relink(ctx context.Context, t Tx, url string) error {
	return fan(ctx, t, schema.Pages(schema.Reinvert),
		second(t.Prefix(ctx, schema.Prefix(url), schema.LinkFrom())))
}
