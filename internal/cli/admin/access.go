package admin

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/cli/inspectcmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands that determine who uses the cluster. Those for clients list and end connections;
// those for grants determine, in the cluster's policy, which clients may use a table; those for
// tokens create and revoke the secrets with which people log in to the console, and browsers to the
// gateway.

// ClientCommand groups the commands for clients.
func ClientCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("client", "List clients and disconnect them", "client ls\nclient disconnect shop",
		inspectcmd.ClientList(d), clientDisconnect(d))
}

func clientDisconnect(d *shell.Deps) *cobra.Command {
	var connection string
	req := &pb.DisconnectClientRequest{}
	cmd := &cobra.Command{
		Use:   "disconnect {CLIENT | --connection NODE/ID}",
		Short: "Close the connections of a client to all nodes, once",
		Long: `Close the connections of a client, named as client ls names it, to all nodes that are alive; or one
connection. Its operations in progress end with an unknown outcome.

The client may connect again at once, and most do. To keep it out, revoke its certificate
(cert revoke); to slow it down, set client-rate (cluster set). The connection that this command
itself uses stays.`,
		Example: "client disconnect shop\nclient disconnect --connection 2/17",
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (connection != "") {
				return shell.Usagef(cmd, "name a client as listed by `client ls`, or --connection NODE/ID")
			}
			if len(args) == 1 {
				req.Identity = args[0]
				return nil
			}
			node, id, _ := strings.Cut(connection, "/")
			var err1, err2 error
			req.NodeId, err1 = strconv.ParseUint(node, 10, 64)
			req.Id, err2 = strconv.ParseUint(id, 10, 64)
			if err1 != nil || err2 != nil {
				return shell.Usagef(cmd, "--connection must be NODE/ID as listed by `client ls --connections`, not %s",
					inspect.Printable(connection))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&connection, "connection", "", "one connection, as NODE/ID")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.DisconnectClient(ctx, req)
		if err != nil {
			return err
		}
		s.NoteUnavailable(resp.GetUnavailable())
		return s.Out.Answer(resp, "%d connections are closed", resp.GetClosed())
	})
}

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

// TokenCommand groups the commands for tokens.
func TokenCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("token", "Create, list and revoke tokens for the console and the gateway",
		"token create ann --role operator\ntoken ls\ntoken revoke ann",
		tokenCreate(d), tokenList(d), tokenRevoke(d))
}

type tokenJSON struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Expired bool      `json:"expired"`
	Token   string    `json:"token,omitempty"` // only in the output of create
}

func newTokenJSON(t *pb.Token) tokenJSON {
	expires := time.UnixMilli(t.GetExpiresUnixMs()).UTC()
	return tokenJSON{
		Name: t.GetName(), Role: t.GetRole(), Created: time.UnixMilli(t.GetCreatedUnixMs()).UTC(),
		Expires: expires, Expired: !time.Now().Before(expires),
	}
}

func tokenCreate(d *shell.Deps) *cobra.Command {
	var role string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token for the console and the gateway, and print it once",
		Long: `Create a token for the console and the gateway of every node. It is printed once and not
stored: the cluster keeps only its hash. In the console an operator may make changes; at the
gateway the roles are those of certificates, and grants to NAME apply. The audit log records NAME.`,
		Example: "token create ann --role operator\ntoken create shop --role writer --ttl 30m",
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if role == "" {
				return shell.Usagef(cmd, "--role is missing: reader, writer, observer or operator")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "reader, writer, observer or operator")
	cmd.Flags().DurationVar(&ttl, "ttl", 12*time.Hour, "validity, at most 90 days")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, args []string) error {
		secret, hash := certs.NewToken() // the cluster stores only the hash
		resp, err := s.Admin.CreateToken(ctx, &pb.CreateTokenRequest{
			Name: args[0], Role: role, TtlMs: ttl.Milliseconds(), Hash: hash,
		})
		if err != nil {
			return err
		}
		made := newTokenJSON(resp.GetToken())
		made.Token = secret
		s.Out.Note("the token of %s, with the role %s until %s; it is not shown again", made.Name, made.Role,
			made.Expires.Format(time.RFC3339))
		return s.Out.Answer(made, "%s", secret)
	})
}

func tokenList(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "ls",
		Short:   "List the tokens with their names, roles and expiry",
		Example: "token ls\ntoken ls -o json",
	}, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.Tokens(ctx, &pb.TokensRequest{})
		if err != nil {
			return err
		}
		list := s.Out.Listing("NAME, ROLE, CREATED, EXPIRES")
		for _, t := range resp.GetTokens() {
			j := newTokenJSON(t)
			expires := j.Expires.Format(time.RFC3339)
			if j.Expired {
				expires += " (expired)"
			}
			list.Add(j, j.Name, j.Role, j.Created.Format(time.RFC3339), expires)
		}
		return list.End()
	})
}

func tokenRevoke(d *shell.Deps) *cobra.Command {
	return d.ClientCommand(&cobra.Command{
		Use:     "revoke NAME",
		Short:   "Remove a token: every node then refuses it",
		Example: "token revoke ann",
	}, func(ctx context.Context, s *shell.Session, args []string) error {
		_, err := s.Admin.RevokeToken(ctx, &pb.RevokeTokenRequest{Name: args[0]})
		return s.Out.Done(err, "the token of %s is revoked", inspect.Printable(args[0]))
	})
}
