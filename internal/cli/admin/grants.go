package admin

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for grants, which determine the clients that may use a table. They change the
// cluster's policy, which meta stores.

// GrantCommand returns the command that allows a client to use a restricted table.
func GrantCommand(d *shell.Deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "grant ROLE NAME --table T",
		Short: "Grant a client access to a table, and restrict the table to its grants",
		Long: `Allow clients whose certificate has the name NAME to read a table (reader), or to read
and change it (writer), if the role in the certificate also allows it. A table with a grant is
restricted to the named clients and operators; one without is open to all clients. When the
command returns, every live node enforces the grant.`,
		Example: "grant writer shop --table orders\ngrant reader report --table orders",
		PreRunE: needsTable(&table),
	}
	cmd.Flags().StringVar(&table, "table", "", "the table")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		_, err := s.Admin.SetGrant(ctx,
			&pb.SetGrantRequest{Table: table, Role: args[0], Name: args[1]})
		return s.Out.Done(err, "%s may use table %s as a %s", inspect.Printable(args[1]), inspect.Printable(table),
			inspect.Printable(args[0]))
	})
}

// RevokeCommand returns the command that revokes a grant.
func RevokeCommand(d *shell.Deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "revoke NAME --table T",
		Short: "Revoke a grant",
		Long: `Revoke a grant. A table whose last grant is revoked is open to all
clients again, and the command says so.`,
		Example: "revoke report --table orders",
		PreRunE: needsTable(&table),
	}
	cmd.Flags().StringVar(&table, "table", "", "the table")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		if _, err := s.Admin.SetGrant(ctx, &pb.SetGrantRequest{Table: table, Name: args[0]}); err != nil {
			return err
		}
		left, err := s.Admin.Grants(ctx, &pb.GrantsRequest{Table: table})
		if err == nil && len(left.GetGrants()) == 0 {
			s.Out.Note("table %s has no more grants: it is open to all clients again", table)
		}
		return s.Out.Done(nil, "%s no longer has a grant of table %s", inspect.Printable(args[0]),
			inspect.Printable(table))
	})
}

// needsTable returns a check that fails without --table.
func needsTable(table *string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if *table == "" {
			return shell.Usagef(cmd, "--table is missing")
		}
		return nil
	}
}

// GrantsCommand returns the command that lists the grants.
func GrantsCommand(d *shell.Deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:     "grants",
		Short:   "List which clients may use restricted tables",
		Example: "grants\ngrants --table orders -o json",
	}
	cmd.Flags().StringVar(&table, "table", "", "only of this table")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.Grants(ctx, &pb.GrantsRequest{Table: table})
		if err != nil {
			return err
		}
		list := s.Out.Listing("TABLE, NAME, ROLE")
		for _, g := range resp.GetGrants() {
			list.Add(struct {
				Table string `json:"table"`
				Name  string `json:"name"`
				Role  string `json:"role"`
			}{g.TableName, g.Name, g.Role}, g.TableName, g.Name, g.Role)
		}
		return list.End()
	})
}
