package cli

import (
	"context"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
)

// The commands about grants: which clients may use a table. They change the cluster's
// policy, which meta keeps.

func grantCommand(d *deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "grant ROLE NAME --table T",
		Short: "Let a client use a table that only those named may use",
		Long: `Let the holders of certificates with the name NAME read a table (reader), or read
and change it (writer), as far as the role in the certificate goes too. A table with a grant is
for the clients that are named, and for operators; one without is for all clients. Every node
that is alive goes by it when the command ends.`,
		Example: "grant writer shop --table orders\ngrant reader report --table orders",
		PreRunE: needsTable(&table),
	}
	cmd.Flags().StringVar(&table, "table", "", "the table")
	return d.client(cmd, func(ctx context.Context, s *session, args []string) error {
		_, err := s.admin.SetGrant(ctx,
			&pb.SetGrantRequest{Table: table, Role: args[0], Name: args[1]})
		if err != nil {
			return err
		}
		return s.out.done("%s may use table %s as a %s", printable(args[1]), printable(table),
			printable(args[0]))
	})
}

func revokeCommand(d *deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "revoke NAME --table T",
		Short: "Take back what grant has given",
		Long: `Take back what grant has given. A table whose last grant is taken back is for all
clients again, and the command says so.`,
		Example: "revoke report --table orders",
		PreRunE: needsTable(&table),
	}
	cmd.Flags().StringVar(&table, "table", "", "the table")
	return d.client(cmd, func(ctx context.Context, s *session, args []string) error {
		if _, err := s.admin.SetGrant(ctx, &pb.SetGrantRequest{Table: table, Name: args[0]}); err != nil {
			return err
		}
		left, err := s.admin.Grants(ctx, &pb.GrantsRequest{Table: table})
		if err == nil && len(left.GetGrants()) == 0 {
			s.out.note("table %s has no grant left: it is for all clients again", table)
		}
		return s.out.done("%s has no grant of table %s any more", printable(args[0]),
			printable(table))
	})
}

// needsTable refuses a command without --table.
func needsTable(table *string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if *table == "" {
			return usagef(cmd, "--table is missing")
		}
		return nil
	}
}

func grantsCommand(d *deps) *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:     "grants",
		Short:   "List which clients may use tables that are not for all",
		Example: "grants\ngrants --table orders -o json",
	}
	cmd.Flags().StringVar(&table, "table", "", "only of this table")
	return d.client(cmd, func(ctx context.Context, s *session, _ []string) error {
		resp, err := s.admin.Grants(ctx, &pb.GrantsRequest{Table: table})
		if err != nil {
			return err
		}
		list := s.out.listing("TABLE, NAME, ROLE")
		for _, g := range resp.GetGrants() {
			list.add(struct {
				Table string `json:"table"`
				Name  string `json:"name"`
				Role  string `json:"role"`
			}{g.TableName, g.Name, g.Role}, g.TableName, g.Name, g.Role)
		}
		return list.end()
	})
}
