package backup

import (
	"context"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/coded"
)

// Grants of a backup's tables: recorded when it is made, and applied to the new tables' ids
// before any row of them can be read.

// Grant allows the holder of a certificate to use a table.
type Grant struct {
	Name string `json:"name"` // name in the certificate
	Role string `json:"role"`
}

// TableGrants are the grants of one table.
type TableGrants struct {
	Table  string
	Grants []Grant
}

// grantsOf returns the grants of the table with the id; empty, not nil, if there are none.
func grantsOf(p *pb.Policy, table uint32) []Grant {
	out := []Grant{}
	for _, g := range p.GetGrants() {
		if g.Table == table {
			out = append(out, Grant{Name: g.Name, Role: g.Role})
		}
	}
	return out
}

// grants returns the grants of the backup's table; known is false if the backup does not contain
// them. Earlier builds stored grants only in the policy, which only backups of all tables contain.
func (m *Manifest) grants(t Table) (grants []Grant, known bool, err error) {
	if t.Grants != nil {
		return t.Grants, true, nil
	}
	if len(m.Policy) == 0 {
		return nil, false, nil
	}
	p, err := m.policy()
	return grantsOf(p, t.ID), err == nil, err
}

// policy returns the cluster's policy stored in the backup.
func (m *Manifest) policy() (*pb.Policy, error) {
	p := &pb.Policy{}
	if err := protojson.Unmarshal(m.Policy, p); err != nil {
		return nil, coded.Errorf("", "%w: the policy of %s: %w", ErrDamaged, m.Name, err)
	}
	return p, nil
}

// grant applies the backup's grants to the tables marked as being restored, which no client can open
// yet. An
// existing grant of the new table is unchanged.
func (r *restoreRun) grant(ctx context.Context) error {
	last := r.chain[len(r.chain)-1]
	for _, t := range r.tables {
		if t.done {
			continue
		}
		grants, known, err := last.grants(t.Table)
		if err != nil {
			return err
		}
		if !known {
			r.result.Ungranted = append(r.result.Ungranted, t.to)
		}
		if len(grants) == 0 {
			continue
		}
		set, err := r.setGrants(ctx, t.to, grants)
		if err != nil {
			return coded.Errorf("", "backup: restore the grants of table %q: %w", t.to, err)
		}
		r.result.Granted = append(r.result.Granted, TableGrants{Table: t.to, Grants: set})
	}
	return nil
}

// setGrants sets the grants, keeping the role of an existing grant of the same name, and returns
// them. It sets existing grants again: an earlier run may have ended before every node had them.
func (r *restoreRun) setGrants(ctx context.Context, table string, grants []Grant) ([]Grant, error) {
	admin := r.client.Admin()
	var there *pb.GrantsResponse
	err := r.persist(ctx, func() (_ bool, err error) {
		there, err = admin.Grants(ctx, &pb.GrantsRequest{Table: table})
		return false, err
	})
	if err != nil {
		return nil, err
	}
	set := make([]Grant, len(grants))
	for i, g := range grants {
		at := slices.IndexFunc(there.GetGrants(), func(h *pb.Grant) bool { return h.Name == g.Name })
		if at >= 0 {
			g.Role = there.Grants[at].Role
		}
		err := r.persist(ctx, func() (bool, error) {
			_, err := admin.SetGrant(ctx, &pb.SetGrantRequest{
				Table: table, Name: g.Name, Role: g.Role,
			})
			return false, err
		})
		if err != nil {
			return nil, err
		}
		set[i] = g
	}
	return set, nil
}
