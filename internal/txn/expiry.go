package txn

import (
	"context"
	"slices"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/wire"
)

// The expiry of tables. Nodes of earlier builds ignore that of a table to be created, so the
// client asks first for the version that all nodes have agreed on.

// CreateExpiring creates a table with the split keys and the expiry. An existing table keeps its expiry.
func (c *Client) CreateExpiring(ctx context.Context, name string, splitKeys []string,
	expiry *pb.TableExpiry) error {
	if err := c.allowExpiry(ctx); err != nil {
		return err
	}
	return c.createWith(ctx, name, splitKeys, expiry)
}

// SetExpiry replaces the expiry of a table; nil removes it.
func (c *Client) SetExpiry(ctx context.Context, table string, expiry *pb.TableExpiry) error {
	if err := c.allowExpiry(ctx); err != nil {
		return err
	}
	tables, err := c.Tables(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tables, func(t *pb.Table) bool { return t.Name == table })
	if i < 0 {
		return Errorf("%w: %q", ErrNoTable, table)
	}
	req := &pb.SetTableExpiryRequest{Name: table, Id: tables[i].Id, Expiry: expiry}
	_, err = retry(ctx, c.meta, func() (*pb.SetTableExpiryResponse, error) {
		return c.Admin().SetTableExpiry(ctx, req)
	})
	return err
}

// allowExpiry returns an error if some nodes may run a build without expiry.
func (c *Client) allowExpiry(ctx context.Context) error {
	policy, err := retry(ctx, c.meta, func() (*pb.ClusterPolicyResponse, error) {
		return c.Admin().ClusterPolicy(ctx, &pb.ClusterPolicyRequest{})
	})
	if err != nil {
		return err
	}
	if err := wire.ExpiryActive(policy.GetPolicy()); err != nil {
		return Invalid("%v", err)
	}
	return nil
}
