package meta

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/policy"
)

// Grants, stored in the policy, by which they reach every node.

const (
	// maxGrants limits the grants of all tables together, maxGrantName the bytes of a name.
	maxGrants    = 1024
	maxGrantName = 255
)

// SetGrant grants the holder of a certificate the role on a table, or revokes the grant if the
// role is empty and the grant exists; it returns the policy. CODE_INVALID if there is no grant to
// revoke. A change also removes the grants of dropped tables.
func (r *Policy) SetGrant(ctx context.Context, g *pb.Grant, exists []*pb.Table) (*pb.Policy, error) {
	switch {
	case g.Role != "" && g.Role != "reader" && g.Role != "writer":
		return nil, refuse(pb.Error_CODE_INVALID, "%q is not a role of a grant: use reader or writer",
			g.Role)
	case g.Name == "" || len(g.Name) > maxGrantName ||
		strings.ContainsFunc(g.Name, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return nil, refuse(pb.Error_CODE_INVALID, "a certificate's name must have 1 to %d printable bytes",
			maxGrantName)
	}
	return update(ctx, r.records, rowPolicy, func(have *pb.Policy) (*pb.Policy, []change, error) {
		if have == nil {
			return nil, nil, refuse(pb.Error_CODE_UNAVAILABLE, "the cluster has no policy yet: try again")
		}
		kept := LivingGrants(have.Grants, exists)
		at, found := slices.BinarySearchFunc(kept, g, compareGrants)
		switch {
		case g.Role == "" && !found:
			return nil, nil, refuse(pb.Error_CODE_INVALID, "%q has no grant of table %q: `percolator "+
				"grants` lists them", g.Name, g.TableName)
		case g.Role == "":
			kept = slices.Delete(kept, at, at+1)
		case found && kept[at].Role == g.Role:
			return have, nil, nil
		case found:
			kept[at] = g
		case len(kept) >= maxGrants:
			return nil, nil, refuse(pb.Error_CODE_TOO_LARGE, "there are %d grants, the maximum: "+
				"revoke some with `percolator revoke`", maxGrants)
		default:
			kept = slices.Insert(kept, at, g)
		}
		p := policy.Complete(proto.CloneOf(have))
		p.Grants, p.Version = kept, have.Version+1
		return p, nil, nil
	})
}

// LivingGrants returns the grants of existing tables.
func LivingGrants(all []*pb.Grant, tables []*pb.Table) []*pb.Grant {
	return slices.DeleteFunc(slices.Clone(all), func(g *pb.Grant) bool {
		return !slices.ContainsFunc(tables, func(t *pb.Table) bool { return t.Id == g.Table })
	})
}

// withoutGrants returns the changes that remove a table's grants from the policy, none if it has
// none.
func (r *Policy) withoutGrants(ctx context.Context, table uint32) ([]change, error) {
	p, old, err := load[*pb.Policy](ctx, r.records, rowPolicy)
	of := func(g *pb.Grant) bool { return g.Table == table }
	if err != nil || !slices.ContainsFunc(p.Grants, of) {
		return nil, err
	}
	p.Grants = slices.DeleteFunc(p.Grants, of)
	p.Version++
	value, err := encode(p)
	return []change{{row: rowPolicy, old: old, value: value}}, err
}

func compareGrants(a, b *pb.Grant) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), strings.Compare(a.Name, b.Name))
}
