package admin

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/certs"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

// The commands for tokens, with which people log in to the console, and browsers to the gateway. The secret is created here and
// printed once; the cluster stores its hash.

// TokenCommand groups the commands for tokens.
func TokenCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("token", "Create, list and revoke tokens for the console and the gateway",
		"token create ann --role operator\ntoken ls\ntoken revoke ann",
		tokenCreate(d), tokenList(d), tokenRevoke(d))
}

// tokenJSON is a token in JSON.
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
		secret, hash := certs.NewToken()
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
