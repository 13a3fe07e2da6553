package admin

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/inspectcmd"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/inspect"
)

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
