package inspectcmd

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "github.com/percolator-go/percolator/api/percolator/v1"
	"github.com/percolator-go/percolator/internal/cli/shell"
)

// The commands about clients: who is connected to which nodes, what they do, and how they are
// cut off. The node that answers asks all others.

// ClientCommand groups the commands for clients.
func ClientCommand(d *shell.Deps) *cobra.Command {
	return shell.Group("client", "List clients and disconnect them", "client ls\nclient disconnect shop",
		clientList(d), clientDisconnect(d))
}

// clientOut is an identity with all its connections.
type clientOut struct {
	Identity    string   `json:"identity"` // the name in its certificates; in plain text its host
	By          string   `json:"by"`
	Roles       []string `json:"roles"`
	Nodes       []uint64 `json:"nodes"`
	Connections int      `json:"connections"`
	Rate        uint64   `json:"cells_per_second"`
	Operations  uint64   `json:"operations"`
	Cells       uint64   `json:"cells"`
	Refused     uint64   `json:"refused"`
}

func clientList(d *shell.Deps) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the clients of all nodes, the busiest first",
		Long: `List the clients of all nodes by their identities, the busiest first. An identity is the
name in a certificate; in plain text, and before its first call, a client has that of its host.
CELLS/S is what they have read and written within the last seconds, the other figures are since
they connected. REFUSED operations were over client-rate or client-table-rate (see cluster set).

With --connections, print a line for each connection.`,
		Example: "client ls\nclient ls --connections",
	}
	each := cmd.Flags().Bool("connections", false, "list each connection")
	return d.ClientCommand(cmd, func(ctx context.Context, s *shell.Session, _ []string) error {
		resp, err := s.Admin.Clients(ctx, &pb.ClientsRequest{})
		if err != nil {
			return err
		}
		if *each {
			err = listConnections(s, resp.GetClients())
		} else {
			err = listClients(s.Out, identities(resp.GetClients()))
		}
		if err == nil {
			noteUnavailable(s, resp.GetUnavailable())
		}
		return err
	})
}

// identities sums the connections by identity, ordered by load, highest first.
func identities(all []*pb.ClientConnection) (out []*clientOut) {
	by := map[string]*clientOut{}
	for _, c := range all {
		name := identityOf(c)
		x := by[name]
		if x == nil {
			x = &clientOut{Identity: name, By: c.By, Roles: []string{}}
			by[name] = x
			out = append(out, x)
		}
		x.By = cmp.Or(x.By, c.By)
		if c.Role != "" && !slices.Contains(x.Roles, c.Role) {
			x.Roles = append(x.Roles, c.Role)
		}
		if !slices.Contains(x.Nodes, c.NodeId) {
			x.Nodes = append(x.Nodes, c.NodeId)
		}
		x.Connections++
		x.Rate, x.Operations = x.Rate+c.Rate, x.Operations+c.Operations
		x.Cells, x.Refused = x.Cells+c.Cells, x.Refused+c.Refused
	}
	slices.SortStableFunc(out, func(a, b *clientOut) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Identity, b.Identity))
	})
	return out
}

// identityOf returns whose connection it is.
func identityOf(c *pb.ClientConnection) string {
	if c.Name != "" {
		return c.Name
	}
	if host, _, err := net.SplitHostPort(c.From); err == nil {
		return host
	}
	return c.From
}

func listClients(out *shell.Printer, clients []*clientOut) error {
	list := out.Listing("CLIENT, BY, ROLE, NODES, CONNECTIONS, CELLS/S, OPERATIONS, REFUSED", 4, 5, 6, 7)
	for _, c := range clients {
		nodes := make([]string, len(c.Nodes))
		for i, n := range c.Nodes {
			nodes[i] = strconv.FormatUint(n, 10)
		}
		list.Add(c, shell.Printable(c.Identity), shell.Printable(cmp.Or(c.By, "-")),
			shell.Printable(cmp.Or(strings.Join(c.Roles, ","), "-")), strings.Join(nodes, ","),
			c.Connections, c.Rate, c.Operations, c.Refused)
	}
	return list.End()
}

func listConnections(s *shell.Session, all []*pb.ClientConnection) error {
	list := s.Out.Listing("CONNECTION, CLIENT, ROLE, FROM, SINCE, CELLS/S, OPERATIONS, REFUSED", 4, 5, 6, 7)
	for _, c := range all {
		list.Add(c, fmt.Sprintf("%d/%d", c.NodeId, c.Id), shell.Printable(identityOf(c)),
			shell.Printable(cmp.Or(c.Role, "-")), shell.Printable(c.From),
			shell.Span(max(0, time.Since(time.UnixMilli(c.ConnectedUnixMs)))), c.Rate, c.Operations, c.Refused)
	}
	return list.End()
}

// noteUnavailable prints the nodes that are missing in an answer.
func noteUnavailable(s *shell.Session, nodes []string) {
	for _, why := range nodes {
		s.Out.Note("not asked, or without an answer: %s", shell.Printable(why))
	}
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
				return shell.Usagef(cmd, "name a client of client ls, or --connection NODE/ID")
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
				return shell.Usagef(cmd, "--connection is NODE/ID of client ls --connections, not %s",
					shell.Printable(connection))
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
		noteUnavailable(s, resp.GetUnavailable())
		return s.Out.Answer(resp, "%d connections are closed", resp.GetClosed())
	})
}
